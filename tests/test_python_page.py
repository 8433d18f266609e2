"""What docs/python.md shows of a whole step runs as it stands, here and in stock onnxruntime."""

import json
from pathlib import Path

import numpy as np
import pytest

import gradtool as gt
from gradtool.exec.ort_options import session

ROOT = Path(__file__).parents[1]


def snippet(heading: str) -> str:
    """The first block of code under a heading."""
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    return page.split(f"## {heading}\n")[1].split("```python\n")[1].split("```")[0]


def test_the_learning_rate_of_the_page_is_one_that_every_runtime_takes(tmp_path):
    pytest.importorskip("onnxruntime")
    with np.load(ROOT / "samples" / "cnn.npz") as loaded:
        inputs = {name: loaded[name] for name in loaded.files}
    model = gt.load(ROOT / "samples" / "cnn.onnx")
    names = {"gt": gt, "np": np, "json": json, "model": model, "inputs": inputs}

    exec(compile(snippet("A whole step"), "docs/python.md", "exec"), names)  # noqa: S102

    gt.save(names["step"], tmp_path / "step.onnx")
    opened = session(str(tmp_path / "step.onnx"), {})
    outputs = [o.name for o in opened.get_outputs()]
    feeds = {**inputs, "lr": names["rate"]}
    for _ in range(20):
        theirs = dict(zip(outputs, opened.run(outputs, feeds), strict=True))
        feeds |= {name: theirs[after] for name, after in names["state"].items()}
    wanted = names["step"].updates["head.weight"]
    np.testing.assert_allclose(theirs[wanted], names["found"][wanted], rtol=1e-2, atol=1e-3)

"""What docs/python.md shows of a whole step runs as it stands, here and in stock onnxruntime."""

import json
from pathlib import Path

import numpy as np
import pytest

import gradtool as gt
from gradtool.workloads.ort_options import session

ROOT = Path(__file__).parents[1]


def snippets(heading: str) -> list[str]:
    """The blocks of code under a heading."""
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [part.split("```")[0] for part in section.split("```python\n")[1:]]


def snippet(heading: str) -> str:
    """The first block of code under a heading."""
    return snippets(heading)[0]


@pytest.fixture
def beside_samples(tmp_path, monkeypatch):
    """A folder in which `samples/` is that of the project."""
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_session_trains_as_the_page_shows(beside_samples):
    names = {"gt": gt, "np": np}
    for block in snippets("Training"):
        exec(compile(block, "docs/python.md", "exec"), names)  # noqa: S102

    assert (beside_samples / "cnn.trained.onnx").exists()
    assert {"stem.relu.out", "head.weight"} <= names["result"].gradients.keys()


@pytest.mark.slow
def test_plans_are_made_as_the_page_shows(beside_samples):
    model = gt.load("samples/cnn.onnx", dims={"batch": 8})
    names = {"gt": gt, "np": np, "training": gt.grad(model)}
    for block in snippets("Less memory"):
        code = block.replace("time_limit=30.0", "time_limit=1.0")
        exec(compile(code, "docs/python.md", "exec"), names)  # noqa: S102

    assert (beside_samples / "plan.json").exists()
    assert names["less"].plan.peak < names["less"].kept.peak


@pytest.mark.exhaustive
def test_the_learning_rate_of_the_page_is_one_that_every_runtime_takes(tmp_path):
    pytest.importorskip("onnxruntime")
    with np.load(ROOT / "samples" / "cnn.npz") as loaded:
        inputs = {name: loaded[name] for name in loaded.files}
    model = gt.load(ROOT / "samples" / "cnn.onnx")
    names = {"gt": gt, "np": np, "json": json, "model": model, "inputs": inputs}

    exec(compile(snippet("A whole step, one run at a time"), "docs/python.md", "exec"), names)  # noqa: S102

    gt.save(names["step"], tmp_path / "step.onnx")
    opened = session(str(tmp_path / "step.onnx"), {})
    outputs = [o.name for o in opened.get_outputs()]
    feeds = {**inputs, "lr": names["rate"]}
    for _ in range(20):
        theirs = dict(zip(outputs, opened.run(outputs, feeds), strict=True))
        feeds |= {name: theirs[after] for name, after in names["state"].items()}
    wanted = names["step"].updates["head.weight"]
    np.testing.assert_allclose(theirs[wanted], names["found"][wanted], rtol=1e-2, atol=1e-3)

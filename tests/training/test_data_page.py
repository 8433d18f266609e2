"""The lines of docs/data.md run as they stand."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from conftest import build
from data_sources import image_model, normal, write_images
from texts import chat, write_lines, write_model

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def lines_of(*, are_texts):
    lines = re.findall(r"^gradtool (.*?)(?: +#.*)?$", PAGE.read_text("utf-8"), re.MULTILINE)
    return [line for line in lines if (".jsonl" in line) == are_texts]


@pytest.mark.extra
def test_a_stranger_trains_on_conversations_in_a_line(run, tmp_path, monkeypatch):
    pytest.importorskip("tokenizers")
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path)
    path = write_model(tmp_path / "FOLDER")
    document = {"model": {"context_length": 64, "decoder": {"filename": path.name}}}
    (path.parent / "genai_config.json").write_text(json.dumps(document))
    write_lines(tmp_path / "chat.jsonl", [chat("what is the color ?", "red .")] * 20)
    lines = lines_of(are_texts=True)

    assert len(lines) == 2
    for line in lines:
        outcome = run(*shlex.split(line))
        assert outcome.code == 0, (line, outcome.err)


def test_a_stranger_trains_on_a_folder_and_on_a_table_in_three_lines_each(run, model, tmp_path):
    model(image_model(), "net.onnx")
    write_images(tmp_path / "images", count=20, size=(16, 20))
    table = "net (float[batch, 4] x) => (float[batch, 3] y) { y = MatMul (x, w) }"
    model(build(table, w=normal(4, 3)), "table.onnx")
    rng = np.random.default_rng(5)
    names = ("setosa", "versicolor", "virginica")
    rows = [
        ",".join([*map(str, rng.standard_normal(4) + 2 * (n % 3)), names[n % 3]])
        for n in range(60)
    ]  # fmt: skip
    (tmp_path / "table.csv").write_text("\n".join(["f1,f2,f3,f4,species", *rows]))
    lines = lines_of(are_texts=False)

    assert len(lines) == 6
    for line in lines:
        outcome = run(*shlex.split(line))
        assert outcome.code == 0, (line, outcome.err)
    for name in ("net", "table"):
        assert (tmp_path / f"{name}.trained.trained.onnx").is_file()

"""Fresh exports by PyTorch: a part of what `benchmarks/exports.py` tries."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from graphs import parse

import gradtool as gt

ROOT = Path(__file__).parents[1]
SOME = (
    ("attention", "script", False, True, 2),
    ("encoder", "script", False, False, 0),
    ("resnet", "raw", False, True, 1),
    ("places", "raw", False, False, 5),
    ("gpt", "raw", True, False, 2),
    ("rotary", "raw", False, False, 1),
    ("masked_select", "dynamo", False, False, 1),
    ("nonzero", "script", True, False, 1),
)


def judge(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return sys.modules.get("exports") or pytest.importorskip("exports")


@pytest.mark.sample(1, 2.5)
@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "kind", "dynamic", "training", "plans"), SOME)
def test_an_export_goes_through_every_command(
    name, kind, dynamic, training, plans, tmp_path, monkeypatch
):
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    exports = judge(monkeypatch)
    case = exports.Case(name, kind, dynamic, training, draw=0)

    assert exports.examine(case, tmp_path, exports.PLANS[:plans]) == ""
    assert case.wrong == []


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
def test_differences_of_the_file_tell_a_folded_parameter_from_a_wrong_gradient(
    tmp_path, monkeypatch
):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    exports = judge(monkeypatch)
    text = "g (float[2, 3] x0) => (float[2, 3] y) <float[3] w = {1, 2, 3}> { y = Mul (x0, w) }"
    gt.save(parse(text), tmp_path / "model.onnx")
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    right, wrong = x.sum(0) / x.size, np.ones(3, np.float32)
    inputs = (torch.tensor(x),)

    assert exports.is_of_file(tmp_path / "model.onnx", inputs, "w", right, wrong)
    assert not exports.is_of_file(tmp_path / "model.onnx", inputs, "w", wrong, right)
    assert not exports.is_of_file(tmp_path / "model.onnx", inputs, "other", right, wrong)

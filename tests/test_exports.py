"""Fresh exports by PyTorch: a part of what `benchmarks/exports.py` tries."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

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


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "kind", "dynamic", "training", "plans"), SOME)
def test_an_export_goes_through_every_command(
    name, kind, dynamic, training, plans, tmp_path, monkeypatch
):
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    exports = sys.modules.get("exports") or pytest.importorskip("exports")
    case = exports.Case(name, kind, dynamic, training, draw=0)

    assert exports.examine(case, tmp_path, exports.PLANS[:plans]) == ""
    assert case.wrong == []

"""Fresh exports by PyTorch: a part of what `benchmarks/exports.py` tries."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOME = (
    ("attention", "script", False, True),
    ("encoder", "script", False, False),
    ("resnet", "raw", False, True),
    ("gpt", "raw", False, False),
    ("gpt", "raw", True, False),
    ("rotary", "raw", False, False),
    ("masked_select", "dynamo", False, False),
    ("nonzero", "script", True, False),
)


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "kind", "dynamic", "training"), SOME)
def test_an_export_goes_through_every_command(name, kind, dynamic, training, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    exports = sys.modules.get("exports") or pytest.importorskip("exports")
    case = exports.Case(name, kind, dynamic, training, draw=0)

    assert (exports.examine(case, tmp_path), case.wrong) == ("", [])

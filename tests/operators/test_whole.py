"""The whole models of the table: control flow and sequences."""

from __future__ import annotations

from importlib import import_module

import cases
import numpy as np
import pytest
from conftest import sampled
from whole import check

for family in ("control", "sequence"):
    import_module(f"operators.{family}")
SEQUENCES = [w for w in cases.WHOLE if any("equence" in op or "Optional" in op for op in w.ops)]


def run(case: cases.Whole) -> dict[str, np.ndarray]:
    return check(case.text, case.weights, wrt=case.wrt.split(), **case.feeds)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "case", sampled(cases.WHOLE, by=lambda w: frozenset(w.ops)), ids=lambda w: w.name
)
def test_gradients_agree_with_finite_differences_and_onnxruntime(case):
    pytest.importorskip("onnxruntime")
    run(case)


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", SEQUENCES, ids=lambda w: w.name)
def test_sequences_that_are_differentiated_as_such(case, monkeypatch):
    """Without their replacement by tensors, where their structure is known."""
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr("gradtool.passes.lower_sequences.lower_sequences", lambda _: 0)
    run(case)

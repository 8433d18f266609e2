"""Second order over the case table: finite differences of the first gradient, in float64."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter

import cases
import numpy as np
import pytest
from conftest import sampled
from operators.second_order import check_second_order

from gradtool.graph.families import FAMILIES

for family in FAMILIES:
    if find_spec(f"operators.{family}"):
        import_module(f"operators.{family}")
PER_OPERATOR = 3
NAMED = (
    "Tanh", "Sigmoid", "Exp", "Log", "Mul", "Div", "Pow", "MatMul", "Gemm", "Softmax", "LogSoftmax",
    "LayerNormalization", "BatchNormalization", "BatchNormalizationTraining", "Conv",
    "ConvTranspose", "AveragePool", "MaxPool", "Gelu", "Softplus", "ReduceL2",
    "SoftmaxCrossEntropyLoss", "Attention", "GroupNormalization", "Erf", "Einsum",
    "ReduceProd",
)  # fmt: skip


def _name(op: str) -> str:
    return op.rsplit("::", 1)[-1]


def _chosen() -> list[cases.Case]:
    """All cases of the operators named, a few of every other."""
    seen: Counter[str] = Counter()
    found = []
    for case in cases.CASES:
        if case.gradient:
            seen[case.op] += 1
            if _name(case.op) in NAMED or seen[case.op] <= PER_OPERATOR:
                found.append(case)
    return found


CHOSEN = _chosen()


@pytest.mark.parametrize("case", sampled(CHOSEN, by=attrgetter("op")), ids=lambda c: c.id)
def test_second_gradients_agree_with_finite_differences(case):
    with np.errstate(all="ignore"):
        check_second_order(case)


def test_the_operators_that_second_order_is_promised_for_have_cases():
    assert set(NAMED) <= {_name(c.op) for c in CHOSEN}

"""Kernels that follow from formulas: their results over what they read, and their operations."""

from __future__ import annotations

import numpy as np
import pytest

from gradtool.graph.specs import Spec
from gradtool.ops import native
from gradtool.ops.elementwise.native import program_of
from gradtool.ops.formulas import FORMULAS
from gradtool.ops.kernels import find
from gradtool.ops.shared.sums import BLOCK

SIZE = BLOCK + 3
ATTRIBUTES = {
    "FactoredDirection": {"epsilon": 0.1},
    "LeakyReluGrad": {"alpha": 0.3},
    "EluGrad": {"alpha": 0.3, "beta": 2.0, "gamma": 1.5},
}
VALUES = np.array([-np.inf, -4, -3, -1, -0.5, -0.0, 0, 0.25, 1, 2.5, 3, 4, np.inf, np.nan])


def operands(formula, dtype):
    rng = np.random.default_rng(len(formula.name))
    made = [rng.choice(VALUES, SIZE).astype(dtype) for _ in range(formula.inputs)]
    if formula.over[0] == 1:
        made[0] = rng.random(SIZE) < 0.5
    return made


def run(kernel, inputs, out, attributes):
    specs = [Spec(each.shape, each.dtype) for each in inputs]
    needed = kernel.workspace(specs, [Spec(out.shape, out.dtype)], attributes)
    work = [np.full(each.shape, 1, each.dtype) for each in needed]
    with np.errstate(all="ignore"):
        kernel.function(np, *inputs, **kernel.buffers([out], work), **attributes)
    return out


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("formula", FORMULAS.entries(), ids=lambda formula: formula.name)
def test_results_over_an_input_have_the_bits_of_those_apart(formula, dtype):
    kernel = find(formula.domain, formula.op, 24)
    attributes = ATTRIBUTES.get(formula.op, {})
    inputs = operands(formula, dtype)
    expected = run(kernel, inputs, np.empty(SIZE, dtype), attributes)

    for slot in kernel.may_inplace:
        given = [each.copy() for each in inputs]
        assert run(kernel, given, given[slot], attributes).tobytes() == expected.tobytes()


@pytest.mark.parametrize("formula", FORMULAS.entries(), ids=lambda formula: formula.name)
def test_programs_write_their_result_last(formula):
    found = native.find(formula.domain, formula.op, 24)
    assert (found is None) == ("native" in formula.apart)
    if found is not None:
        attributes = ATTRIBUTES.get(formula.op, {})
        said = formula.native or formula.formula
        operations = program_of(said, [0] * formula.inputs, **attributes)
        read = {number for _, *each in operations for kind, number in each if kind == "made"}
        assert read == set(range(len(operations) - 1))

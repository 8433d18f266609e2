"""Rules that pass a gradient on or refuse, depending on types: no finite difference shows that."""

from __future__ import annotations

import numpy as np
import pytest
from cases import Case, Floats
from checkers import build, differentiated, evaluate

from gradtool.emit.builder import Builder
from gradtool.ops.driver import Offenders, differentiate


def refusal(case: Case) -> str:
    """Why the gradient of a case by its first input is refused."""
    model, _ = build(case, np.float32)
    op = Builder(model)
    heads = {v: op.zeros_like(v) for v in model.graph.outputs}
    with pytest.raises(Offenders) as caught:
        differentiate(op, heads, [model.graph.inputs[0]])
    return str(caught.value)


def test_bits_read_as_their_own_type_pass_the_gradient_on():
    case = Case("BitCast", (Floats((2, 3)),), {"to": 1}, opset=26)
    model, feeds, names = differentiated(case, np.float32)

    found = evaluate(model, feeds)

    np.testing.assert_array_equal(found[names[0]], feeds["c_y0"])


def test_bits_read_as_another_type_have_no_derivative():
    case = Case("BitCast", (Floats((2, 3)),), {"to": 6}, opset=26)

    assert "no derivative" in refusal(case)


def test_rounding_has_no_derivative_without_ste():
    case = Case("QuantizeLinear", (Floats((2, 3)), np.float32(0.1), np.uint8(3)))

    assert "--ste" in refusal(case)

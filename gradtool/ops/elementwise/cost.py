"""Arithmetic, comparison and logic: one operation per element and function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.ops.costs import cost, each, free
from gradtool.ops.formulas import OPERATIONS
from gradtool.ops.shared.element_counts import Results, Shaped, made, size

each({name: operation.counts for name, operation in OPERATIONS.items()})
each(dict.fromkeys(("Div", "IsInf", "Mod", "Pow", "Reciprocal"), 1))
free(("BitShift", "Cast", "CastLike", "Identity", "Where"))


@cost("Max", "Min", "Sum")
def folded(*inputs: Shaped, out: Results) -> int:
    """`x₁ + … + xₙ`."""
    return (len(inputs) - 1) * made(out)


@cost("Mean")
def mean(*inputs: Shaped, out: Results) -> int:
    """`(x₁ + … + xₙ) / n`."""
    return len(inputs) * made(out)


@cost("ai.gradtool::PowGrad")
def pow_grad(_: Shaped, exponent: Shaped, __: Shaped, *, out: Results) -> int:
    """`dx = dy · x^(e - 1) · e`, unless e = 0."""
    return 3 * made(out) + 2 * size(exponent)


@cost("ai.gradtool::PowExponentGrad")
def pow_exponent_grad(x: Shaped, exponent: Shaped, _: Shaped, __: Shaped, *, out: Results) -> int:
    """`de = dy · y · log x`, unless x = 0 and e ≥ 0."""
    return 2 * made(out) + 2 * size(x) + size(exponent)


@cost("ai.gradtool::MaxGrad", "ai.gradtool::MinGrad")
def extreme_grad(x: Shaped, _: Shaped, __: Shaped, *, out: Results) -> int:
    """`dy` where x is the larger or NaN, `½ dy` where both are equal."""
    return 3 * made(out) + size(x)


def _bounds(bounds: Sequence[Any], out: Results) -> int:
    return sum(bound is not None for bound in bounds) * made(out)


@cost("Clip")
def clip(_: Shaped, *bounds: Any, out: Results) -> int:
    """`min(max(x, low), high)`."""
    return _bounds(bounds, out)


@cost("ai.gradtool::ClipGrad")
def clip_grad(_: Shaped, low: Any, high: Any, __: Shaped, *, out: Results) -> int:
    """`dy`, unless x < low or x > high."""
    return _bounds((low, high), out)

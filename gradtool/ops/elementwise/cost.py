"""Arithmetic, comparison and logic: one operation per element and function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.ops.costs import cost, each, free
from gradtool.ops.shared.element_counts import Results, Shaped, made, size

ONCE = (
    "Abs", "Acos", "Acosh", "Add", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Div",
    "Equal", "Exp", "Floor", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual",
    "Log", "Mod", "Mul", "Neg", "Pow", "Reciprocal", "Round", "Sign", "Sin", "Sinh", "Sqrt", "Sub",
    "Tan", "Tanh",
)  # fmt: skip

each(dict.fromkeys(ONCE, 1))
free((
    "And", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike",
    "Identity", "Not", "Or", "Where", "Xor",
))  # fmt: skip

each({
    "ai.gradtool::AbsGrad": 2,  # dy · sign x
    "ai.gradtool::SqrtGrad": 2,  # dy / (y + y)
    "ai.gradtool::ReciprocalGrad": 3,  # -(dy · y · y)
    "ai.gradtool::SinGrad": 2,  # dy · cos x
    "ai.gradtool::CosGrad": 3,  # -(dy · sin x)
    "ai.gradtool::TanGrad": 3,  # dy · (y · y + 1)
    "ai.gradtool::AsinGrad": 5,  # dy / √((1 - x) · (x + 1))
    "ai.gradtool::AcosGrad": 6,  # -(dy / √((1 - x) · (x + 1)))
    "ai.gradtool::AtanGrad": 3,  # dy / (x · x + 1)
    "ai.gradtool::SinhGrad": 2,  # dy · cosh x
    "ai.gradtool::CoshGrad": 2,  # dy · sinh x
    "ai.gradtool::AsinhGrad": 4,  # dy / √(x · x + 1)
    "ai.gradtool::AcoshGrad": 5,  # dy / √((x - 1) · (x + 1))
    "ai.gradtool::AtanhGrad": 4,  # dy / ((1 - x) · (x + 1))
    "ai.gradtool::ErfGrad": 5,  # dy · exp(-(x · x)) · c
})  # fmt: skip


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

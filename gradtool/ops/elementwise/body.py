"""Composites of the elementwise family: gradients of more than two operators."""

from __future__ import annotations

import math

from gradtool.emit.builder import Builder
from gradtool.graph.composites import composite
from gradtool.graph.typed import Tensor

ROOT_PI = math.sqrt(math.pi)


@composite("AbsGrad")
def abs_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy · sign(x)`, which is 0 at 0."""
    return dy * op.Sign(x)


@composite("SqrtGrad")
def sqrt_grad(op: Builder, y: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy / 2y`."""
    return dy / (y + y)


@composite("ReciprocalGrad")
def reciprocal_grad(op: Builder, y: Tensor, dy: Tensor) -> Tensor:
    """`dx = -dy · y²`."""
    return -(dy * (y * y))


@composite("SinGrad")
def sin_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy · cos x`."""
    return dy * op.Cos(x)


@composite("CosGrad")
def cos_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`dx = -dy · sin x`."""
    return -(dy * op.Sin(x))


@composite("TanGrad")
def tan_grad(op: Builder, y: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy · (1 + y²)`."""
    return dy * (y * y + 1.0)


@composite("AsinGrad")
def asin_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy / √(1 - x²)`."""
    return dy / op.Sqrt((1.0 - x) * (x + 1.0))


@composite("AcosGrad")
def acos_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`dx = -dy / √(1 - x²)`."""
    return -(dy / op.Sqrt((1.0 - x) * (x + 1.0)))


@composite("AtanGrad")
def atan_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy / (1 + x²)`."""
    return dy / (x * x + 1.0)


@composite("SinhGrad")
def sinh_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy · cosh x`."""
    return dy * op.Cosh(x)


@composite("CoshGrad")
def cosh_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy · sinh x`."""
    return dy * op.Sinh(x)


@composite("AsinhGrad")
def asinh_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy / √(x² + 1)`."""
    return dy / op.Sqrt(x * x + 1.0)


@composite("AcoshGrad")
def acosh_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy / √(x² - 1)`."""
    return dy / op.Sqrt((x - 1.0) * (x + 1.0))


@composite("AtanhGrad")
def atanh_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy / (1 - x²)`."""
    return dy / ((1.0 - x) * (x + 1.0))


@composite("ErfGrad")
def erf_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy · 2/√π · exp(-x²)`."""
    return dy * (op.Exp(-(x * x)) * (2 / ROOT_PI))


@composite("PowGrad", like=2)
def pow_grad(op: Builder, x: Tensor, exponent: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy · e · x^(e - 1)`, and 0 where e is 0."""
    exponent = op.cast(exponent, x.dtype)
    positive_power = op.Where(op.Equal(exponent, 0.0), 1.0, exponent) - 1.0
    return dy * (op.Pow(x, positive_power) * exponent)


@composite("PowExponentGrad", like=3)
def pow_exponent_grad(op: Builder, x: Tensor, exponent: Tensor, y: Tensor, dy: Tensor) -> Tensor:
    """`de = dy · y · log x`, and 0 where x is 0 and e is not negative."""
    vanishes = op.And(op.Equal(x, 0.0), op.GreaterOrEqual(op.cast(exponent, x.dtype), 0.0))
    return dy * op.Where(vanishes, 0.0, y * op.Log(x))


@composite("MaxGrad", like=2)
def max_grad(op: Builder, x: Tensor, other: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy` where x is the larger (or NaN), half of it where they are equal, else 0."""
    return _extreme_grad(op, x, other, dy, op.Greater(x, other))


@composite("MinGrad", like=2)
def min_grad(op: Builder, x: Tensor, other: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy` where x is the smaller (or NaN), half of it where they are equal, else 0."""
    return _extreme_grad(op, x, other, dy, op.Less(x, other))


def _extreme_grad(op: Builder, x: Tensor, other: Tensor, dy: Tensor, wins: Tensor) -> Tensor:
    shared = op.Where(op.Equal(x, other), dy * 0.5, 0.0)
    return op.Where(op.Or(wins, op.IsNaN(x)), dy, shared)


@composite("ClipGrad", like=3)
def clip_grad(
    op: Builder, x: Tensor, low: Tensor | None, high: Tensor | None, dy: Tensor
) -> Tensor:
    """`dx = dy`, and 0 where x is below `low` or above `high`; either bound may be absent."""
    below = None if low is None else op.Less(x, low)
    above = None if high is None else op.Greater(x, high)
    if below is None or above is None:
        outside = above if below is None else below
    else:
        outside = op.Or(below, above)
    return op.Where(outside, 0.0, dy)

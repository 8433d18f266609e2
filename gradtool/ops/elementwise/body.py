"""Composites of the elementwise family: gradients of more than two operators."""

from __future__ import annotations

from gradtool.emit.builder import Builder
from gradtool.graph.composites import composite
from gradtool.graph.typed import Tensor


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
    """`dx = dy` where x is larger (or NaN), `dy / 2` at ties, else 0."""
    return _extreme_grad(op, x, other, dy, op.Greater(x, other))


@composite("MinGrad", like=2)
def min_grad(op: Builder, x: Tensor, other: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy` where x is smaller (or NaN), `dy / 2` at ties, else 0."""
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

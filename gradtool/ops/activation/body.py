"""Gradients of activations."""

from __future__ import annotations

from gradtool.emit.builder import Builder
from gradtool.graph.composites import composite
from gradtool.graph.typed import Tensor
from gradtool.ops.shared.tiling import by_piece


@composite("LeakyReluGrad")
@by_piece
def leaky_relu_grad(op: Builder, x: Tensor, dy: Tensor, *, alpha: float) -> Tensor:
    """`dx = dy`, and `α dy` where x is not positive."""
    return op.Where(op.LessOrEqual(x, 0.0), dy * alpha, dy)


@composite("PReluGrad")
def prelu_grad(op: Builder, x: Tensor, slope: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy`, and `slope · dy` where x is not positive."""
    return op.Where(op.LessOrEqual(x, 0.0), dy * slope, dy)


@composite("EluGrad")
@by_piece
def elu_grad(
    op: Builder, y: Tensor, dy: Tensor, *, alpha: float, beta: float, gamma: float
) -> Tensor:
    """`dx = γ dy`, and `β (y + α) dy` where y is not positive."""
    return op.Where(op.LessOrEqual(y, 0.0), (y + alpha) * beta * dy, dy * gamma)


@composite("DropoutGrad", like=1)
@by_piece
def dropout_grad(op: Builder, mask: Tensor, dy: Tensor, scale: Tensor) -> Tensor:
    """`dx = scale · dy` where `mask` is true, else 0; and forward, where the mask is counted."""
    return op.Where(mask, dy * scale, 0.0)


@composite("MaskGrad", like=1)
@by_piece
def mask_grad(op: Builder, mask: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy` where `mask` is true, else 0."""
    return op.Where(mask, dy, 0.0)

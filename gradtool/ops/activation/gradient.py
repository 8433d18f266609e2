"""Gradients of activations, in terms of their output where it suffices."""

from __future__ import annotations

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Node, Tensor, given
from gradtool.ops.formulas import attributes
from gradtool.ops.gradients import Gradients, derivative, gradient, zero_gradient

zero_gradient("Hardmax", "ai.gradtool::DropoutMask")


@gradient("LeakyRelu")
def leaky_relu(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = x` where x is positive, else `α x`:  dx = dy, or α dy.  y has the sign of x if α ≥ 0."""
    alpha = attributes(node)["alpha"]
    return op.LeakyReluGrad(node.outputs[0] if alpha >= 0 else node.inputs[0], dy, alpha=alpha)


@gradient("PRelu", broadcasts=True)
def prelu(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = x` where x is positive, else `s x`:  dx = dy, or s dy;  ds = dy · min(x, 0)."""
    x, slope = node.inputs
    return op.PReluGrad(x, slope, dy), dy * op.Min(x, 0.0)


@gradient("Elu")
def elu(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = x` where x is positive, else `α (exp x - 1)`:  dx = dy, or `(y + α) dy`."""
    alpha = attributes(node)["alpha"]
    if alpha > 0:
        return op.EluGrad(node.outputs[0], dy, alpha=alpha, beta=1.0, gamma=1.0)
    return _exponential(op, node.inputs[0], dy, alpha, 1.0)


@gradient("Selu")
def selu(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = γ x` where x is positive, else `γ α (exp x - 1)`:  dx = γ dy, or `(y + γ α) dy`."""
    gamma = attributes(node)["gamma"]
    alpha = attributes(node)["alpha"] * gamma
    if alpha > 0 and gamma > 0:
        return op.EluGrad(node.outputs[0], dy, alpha=alpha, beta=1.0, gamma=gamma)
    return _exponential(op, node.inputs[0], dy, alpha, gamma)


def _exponential(op: Builder, x: Tensor, dy: Tensor, alpha: float, gamma: float) -> Tensor:
    """The same from x, for unusual signs: y does not tell then whether x is positive."""
    return dy * op.Where(op.LessOrEqual(x, 0.0), op.Exp(x) * alpha, gamma)


@gradient("Celu")
def celu(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = x` where x is positive, else `α (exp(x/α) - 1)`:  dx = dy, or `(y + α)/α dy`."""
    alpha = attributes(node)["alpha"]
    return op.EluGrad(node.outputs[0], dy, alpha=alpha, beta=1 / alpha, gamma=1.0)


@gradient("ThresholdedRelu")
def thresholded_relu(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = x` where x exceeds α, else 0:  dx = dy there, else 0."""
    alpha = attributes(node)["alpha"]
    return op.Where(op.LessOrEqual(node.inputs[0], alpha), 0.0, dy)


@gradient("Shrink")
def shrink(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = x ± bias` where |x| exceeds λ, else 0:  dx = dy there, else 0."""
    x = node.inputs[0]
    bound = attributes(node)["lambd"]
    return op.Where(op.Or(op.Less(x, -bound), op.Greater(x, bound)), dy, 0.0)


@derivative("Softmax", of="y", axis=-1)
def softmax_grad(op: Builder, y: Tensor, dy: Tensor, *, axis: int) -> Tensor:
    """`y = exp x / Σ exp x`:  dx = y · (dy - Σ y · dy)."""
    return y * (dy - op.sum(y * dy, [axis], keepdims=True))


@derivative("LogSoftmax", of="y", axis=-1)
def log_softmax_grad(op: Builder, y: Tensor, dy: Tensor, *, axis: int) -> Tensor:
    """`y = x - log Σ exp x`:  dx = dy - exp(y) · Σ dy."""
    return dy - op.Exp(y) * op.sum(dy, [axis], keepdims=True)


@gradient("ai.gradtool::DropoutGrad")
def dropped(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = scale · x` where the mask is true, else 0:  dx = scale · dy there, else 0."""
    mask, _, scale = node.inputs
    return None, op.DropoutGrad(mask, dy, scale), None


@gradient("Dropout")
def dropout(op: Builder, node: Node, dy: Tensor | None, dmask: Tensor | None = None) -> Gradients:
    """`y = x · mask / (1 - ratio)` in training, else x:  dx = dy · mask / (1 - ratio), or dy.

    The mask is the one that forward drew.
    """
    if dy is None:
        return [None] * len(node.inputs)
    ratio, training = given(node, 1), given(node, 2)
    known = None if training is None else ir.convenience.get_const_tensor(training)
    if training is None or (known is not None and not known.numpy().item()):
        return dy, None, None
    _, mask = op.all_outputs(node, 2)
    ratio = op.constant(0.5, dy.dtype) if ratio is None else op.cast(ratio, dy.dtype)
    scale = op.Reciprocal(1.0 - ratio)
    if known is None:
        scale = op.Where(training, scale, 1.0)
    return op.DropoutGrad(mask, dy, scale), None, None

"""Gradients of activations, in terms of their output where that says enough."""

from __future__ import annotations

import math

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Node, Tensor, given
from gradtool.ops.gradients import Gradients, derivative, gradient, zero_gradient

ROOT_HALF = math.sqrt(0.5)
DENSITY = 1 / math.sqrt(2 * math.pi)
ROOT = math.sqrt(2 / math.pi)
CUBE = 0.044715
SELU_ALPHA = 1.67326319217681884765625
SELU_GAMMA = 1.05070102214813232421875

zero_gradient("Hardmax", "ai.gradtool::DropoutMask")


@derivative("Relu", of="y", in_pieces=True)
def relu_grad(op: Builder, y: Tensor, dy: Tensor) -> Tensor:
    """`y = max(x, 0)`:  dx = dy where y is positive, else 0."""
    return op.Where(op.LessOrEqual(y, 0.0), 0.0, dy)


@gradient("LeakyRelu")
def leaky_relu(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = x` where x is positive, else `α x`:  dx = dy, or α dy.  y has the sign of x if α ≥ 0."""
    alpha = node.attributes.get_float("alpha", 0.01)
    return op.LeakyReluGrad(node.outputs[0] if alpha >= 0 else node.inputs[0], dy, alpha=alpha)


@gradient("PRelu", broadcasts=True)
def prelu(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = x` where x is positive, else `s x`:  dx = dy, or s dy;  ds = dy · min(x, 0)."""
    x, slope = node.inputs
    return op.PReluGrad(x, slope, dy), dy * op.Min(x, 0.0)


@gradient("Elu")
def elu(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = x` where x is positive, else `α (exp x - 1)`:  dx = dy, or `(y + α) dy`."""
    alpha = node.attributes.get_float("alpha", 1.0)
    if alpha > 0:
        return op.EluGrad(node.outputs[0], dy, alpha=alpha, beta=1.0, gamma=1.0)
    return _exponential(op, node.inputs[0], dy, alpha, 1.0)


@gradient("Selu")
def selu(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = γ x` where x is positive, else `γ α (exp x - 1)`:  dx = γ dy, or `(y + γ α) dy`."""
    gamma = node.attributes.get_float("gamma", SELU_GAMMA)
    alpha = node.attributes.get_float("alpha", SELU_ALPHA) * gamma
    if alpha > 0 and gamma > 0:
        return op.EluGrad(node.outputs[0], dy, alpha=alpha, beta=1.0, gamma=gamma)
    return _exponential(op, node.inputs[0], dy, alpha, gamma)


def _exponential(op: Builder, x: Tensor, dy: Tensor, alpha: float, gamma: float) -> Tensor:
    """The same from x, for the unusual signs with which y doesn't tell where x is positive."""
    return dy * op.Where(op.LessOrEqual(x, 0.0), op.Exp(x) * alpha, gamma)


@gradient("Celu")
def celu(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = x` where x is positive, else `α (exp(x/α) - 1)`:  dx = dy, or `(y + α)/α dy`."""
    alpha = node.attributes.get_float("alpha", 1.0)
    return op.EluGrad(node.outputs[0], dy, alpha=alpha, beta=1 / alpha, gamma=1.0)


@derivative("Gelu", of="x", in_pieces=True, approximate="none")
def gelu_grad(op: Builder, x: Tensor, dy: Tensor, *, approximate: str = "none") -> Tensor:
    """`y = x Φ(x)`:  dx = dy · (Φ(x) + x φ(x)); with approximate=tanh, that one's derivative."""
    if approximate == "none":
        cumulative = (op.Erf(x * ROOT_HALF) + 1.0) * 0.5
        density = op.Exp(x * x * -0.5) * DENSITY
        return dy * (cumulative + x * density)
    square = x * x
    h = op.Tanh((square * (CUBE * ROOT) + ROOT) * x)
    inner = (square * (1.5 * CUBE * ROOT) + 0.5 * ROOT) * x
    return dy * ((h + 1.0) * 0.5 + inner * (1.0 - h * h))


@derivative("HardSigmoid", of="y", in_pieces=True, alpha=0.2)
def hard_sigmoid_grad(op: Builder, y: Tensor, dy: Tensor, *, alpha: float) -> Tensor:
    """`y = max(0, min(1, α x + β))`:  dx = α dy where `0 < y < 1`, else 0."""
    outside = op.Or(op.LessOrEqual(y, 0.0), op.GreaterOrEqual(y, 1.0))
    return op.Where(outside, 0.0, dy * alpha)


@derivative("HardSwish", of="x", in_pieces=True)
def hard_swish_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`y = x · max(0, min(1, x/6 + 1/2))`:  dx = dy · (x/3 + 1/2) between -3 and 3, then 0 or 1."""
    slope = op.Where(op.LessOrEqual(x, -3.0), 0.0, x * (1 / 3) + 0.5)
    return dy * op.Where(op.GreaterOrEqual(x, 3.0), 1.0, slope)


@derivative("Sigmoid", of="y")
def sigmoid_grad(op: Builder, y: Tensor, dy: Tensor) -> Tensor:
    """`y = 1 / (1 + exp(-x))`:  dx = dy · y (1 - y)."""
    return dy * ((1.0 - y) * y)


@derivative("Tanh", of="y")
def tanh_grad(op: Builder, y: Tensor, dy: Tensor) -> Tensor:
    """`y = tanh x`:  dx = dy · (1 - y²)."""
    return dy * (1.0 - y * y)


@derivative("Softplus", of="x")
def softplus_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`y = log(1 + exp x)`:  dx = dy · σ(x)."""
    return dy * op.Sigmoid(x)


@derivative("Softsign", of="x")
def softsign_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`y = x / (1 + |x|)`:  dx = dy / (1 + |x|)²."""
    root = op.Abs(x) + 1.0
    return dy / (root * root)


@derivative("Mish", of="x", in_pieces=True)
def mish_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`y = x h` with `h = tanh(softplus x)`:  dx = dy · (h + x σ(x) (1 - h²))."""
    h = op.Tanh(op.Softplus(x))
    return dy * (h + x * op.Sigmoid(x) * (1.0 - h * h))


@derivative("Swish", of="x", in_pieces=True, alpha=1.0)
def swish_grad(op: Builder, x: Tensor, dy: Tensor, *, alpha: float) -> Tensor:
    """`y = x σ(αx)`:  dx = dy · σ (1 + αx (1 - σ))."""
    z = x * alpha
    s = op.Sigmoid(z)
    return dy * (s * (z * (1.0 - s) + 1.0))


@gradient("ThresholdedRelu")
def thresholded_relu(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = x` where x exceeds α, else 0:  dx = dy there, else 0."""
    alpha = node.attributes.get_float("alpha", 1.0)
    return op.Where(op.LessOrEqual(node.inputs[0], alpha), 0.0, dy)


@gradient("Shrink")
def shrink(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = x ± bias` where |x| exceeds λ, else 0:  dx = dy there, else 0."""
    x = node.inputs[0]
    bound = node.attributes.get_float("lambd", 0.5)
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

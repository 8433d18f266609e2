"""Gradients of activations, in terms of their output where that says enough."""

from __future__ import annotations

import onnx_ir as ir

from gradtool.gradients import gradient, zero_gradient

SELU_ALPHA = 1.67326319217681884765625
SELU_GAMMA = 1.05070102214813232421875

zero_gradient("Hardmax")


@gradient("Relu")
def relu(op, node, dy):
    """`y = max(x, 0)`:  dx = dy where y is positive, else 0."""
    return op.ReluGrad(node.outputs[0], dy)


@gradient("LeakyRelu")
def leaky_relu(op, node, dy):
    """`y = x` where x is positive, else `α x`:  dx = dy, or α dy.  y has the sign of x if α ≥ 0."""
    alpha = node.attributes.get_float("alpha", 0.01)
    return op.LeakyReluGrad(node.outputs[0] if alpha >= 0 else node.inputs[0], dy, alpha=alpha)


@gradient("PRelu", broadcasts=True)
def prelu(op, node, dy):
    """`y = x` where x is positive, else `s x`:  dx = dy, or s dy;  ds = dy · min(x, 0)."""
    x, slope = node.inputs
    return op.PReluGrad(x, slope, dy), dy * op.Min(x, 0.0)


@gradient("Elu")
def elu(op, node, dy):
    """`y = x` where x is positive, else `α (exp x - 1)`:  dx = dy, or `(y + α) dy`."""
    alpha = node.attributes.get_float("alpha", 1.0)
    if alpha > 0:
        return op.EluGrad(node.outputs[0], dy, alpha=alpha, beta=1.0, gamma=1.0)
    return _exponential(op, node.inputs[0], dy, alpha, 1.0)


@gradient("Selu")
def selu(op, node, dy):
    """`y = γ x` where x is positive, else `γ α (exp x - 1)`:  dx = γ dy, or `(y + γ α) dy`."""
    gamma = node.attributes.get_float("gamma", SELU_GAMMA)
    alpha = node.attributes.get_float("alpha", SELU_ALPHA) * gamma
    if alpha > 0 and gamma > 0:
        return op.EluGrad(node.outputs[0], dy, alpha=alpha, beta=1.0, gamma=gamma)
    return _exponential(op, node.inputs[0], dy, alpha, gamma)


def _exponential(op, x, dy, alpha, gamma):
    """The same from x, for the unusual signs with which y doesn't tell where x is positive."""
    return dy * op.Where(op.LessOrEqual(x, 0.0), op.Exp(x) * alpha, gamma)


@gradient("Celu")
def celu(op, node, dy):
    """`y = x` where x is positive, else `α (exp(x/α) - 1)`:  dx = dy, or `(y + α)/α dy`."""
    alpha = node.attributes.get_float("alpha", 1.0)
    return op.EluGrad(node.outputs[0], dy, alpha=alpha, beta=1 / alpha, gamma=1.0)


@gradient("Gelu")
def gelu(op, node, dy):
    """`y = x Φ(x)`:  dx = dy · (Φ(x) + x φ(x)); with approximate=tanh, that one's derivative."""
    approximate = node.attributes.get_string("approximate", "none")
    return op.GeluGrad(node.inputs[0], dy, approximate=approximate)


@gradient("HardSigmoid")
def hard_sigmoid(op, node, dy):
    """`y = max(0, min(1, α x + β))`:  dx = α dy where `0 < y < 1`, else 0."""
    alpha = node.attributes.get_float("alpha", 0.2)
    return op.HardSigmoidGrad(node.outputs[0], dy, alpha=alpha)


@gradient("HardSwish")
def hard_swish(op, node, dy):
    """`y = x · max(0, min(1, x/6 + 1/2))`:  dx = dy · (x/3 + 1/2) between -3 and 3, then 0 or 1."""
    return op.HardSwishGrad(node.inputs[0], dy)


@gradient("Sigmoid")
def sigmoid(op, node, dy):
    """`y = 1 / (1 + exp(-x))`:  dx = dy · y (1 - y)."""
    return op.SigmoidGrad(node.outputs[0], dy)


@gradient("Tanh")
def tanh(op, node, dy):
    """`y = tanh x`:  dx = dy · (1 - y²)."""
    return op.TanhGrad(node.outputs[0], dy)


@gradient("Softplus")
def softplus(op, node, dy):
    """`y = log(1 + exp x)`:  dx = dy · σ(x)."""
    return op.SoftplusGrad(node.inputs[0], dy)


@gradient("Softsign")
def softsign(op, node, dy):
    """`y = x / (1 + |x|)`:  dx = dy / (1 + |x|)²."""
    return op.SoftsignGrad(node.inputs[0], dy)


@gradient("Mish")
def mish(op, node, dy):
    """`y = x h` with `h = tanh(softplus x)`:  dx = dy · (h + x σ(x) (1 - h²))."""
    return op.MishGrad(node.inputs[0], dy)


@gradient("Swish")
def swish(op, node, dy):
    """`y = x σ(αx)`:  dx = dy · σ (1 + αx (1 - σ))."""
    return op.SwishGrad(node.inputs[0], dy, alpha=node.attributes.get_float("alpha", 1.0))


@gradient("ThresholdedRelu")
def thresholded_relu(op, node, dy):
    """`y = x` where x exceeds α, else 0:  dx = dy there, else 0."""
    alpha = node.attributes.get_float("alpha", 1.0)
    return op.Where(op.LessOrEqual(node.inputs[0], alpha), 0.0, dy)


@gradient("Shrink")
def shrink(op, node, dy):
    """`y = x ± bias` where |x| exceeds λ, else 0:  dx = dy there, else 0."""
    x = node.inputs[0]
    bound = node.attributes.get_float("lambd", 0.5)
    return op.Where(op.Or(op.Less(x, -bound), op.Greater(x, bound)), dy, 0.0)


@gradient("Softmax")
def softmax(op, node, dy):
    """`y = exp x / Σ exp x`:  dx = y · (dy - Σ y · dy)."""
    return op.SoftmaxGrad(node.outputs[0], dy, axis=node.attributes.get_int("axis", -1))


@gradient("LogSoftmax")
def log_softmax(op, node, dy):
    """`y = x - log Σ exp x`:  dx = dy - exp(y) · Σ dy."""
    return op.LogSoftmaxGrad(node.outputs[0], dy, axis=node.attributes.get_int("axis", -1))


@gradient("Dropout")
def dropout(op, node, dy, dmask=None):
    """`y = x · mask / (1 - ratio)` in training, else x:  dx = dy · mask / (1 - ratio), or dy.

    The mask is the one that forward drew.
    """
    if dy is None:
        return [None] * len(node.inputs)
    _, ratio, training = (*node.inputs, None, None)[:3]
    known = None if training is None else ir.convenience.get_const_tensor(training)
    if training is None or (known is not None and not known.numpy().item()):
        return dy, None, None
    _, mask = op.all_outputs(node, 2)
    ratio = op.constant(0.5, dy.dtype) if ratio is None else op.cast(ratio, dy.dtype)
    scale = op.Reciprocal(1.0 - ratio)
    if known is None:
        scale = op.Where(training, scale, 1.0)
    return op.DropoutGrad(mask, dy, scale), None, None

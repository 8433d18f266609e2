"""Gradients of activations."""

from __future__ import annotations

import math

from gradtool.functions import composite

ROOT_HALF = math.sqrt(0.5)
DENSITY = 1 / math.sqrt(2 * math.pi)
ROOT = math.sqrt(2 / math.pi)
CUBE = 0.044715


@composite("ReluGrad")
def relu_grad(op, y, dy):
    """`dx = dy`, and 0 where y is 0; NaN passes dy."""
    return op.Where(op.LessOrEqual(y, 0.0), 0.0, dy)


@composite("LeakyReluGrad")
def leaky_relu_grad(op, x, dy, *, alpha):
    """`dx = dy`, and `α dy` where x is not positive."""
    return op.Where(op.LessOrEqual(x, 0.0), dy * alpha, dy)


@composite("PReluGrad")
def prelu_grad(op, x, slope, dy):
    """`dx = dy`, and `slope · dy` where x is not positive."""
    return op.Where(op.LessOrEqual(x, 0.0), dy * slope, dy)


@composite("EluGrad")
def elu_grad(op, y, dy, *, alpha, beta, gamma):
    """`dx = γ dy`, and `β (y + α) dy` where y is not positive."""
    return op.Where(op.LessOrEqual(y, 0.0), (y + alpha) * beta * dy, dy * gamma)


@composite("GeluGrad")
def gelu_grad(op, x, dy, *, approximate="none"):
    """`dx = dy · (Φ(x) + x φ(x))`, or the derivative of the approximation by tanh."""
    if approximate == "none":
        cumulative = (op.Erf(x * ROOT_HALF) + 1.0) * 0.5
        density = op.Exp(x * x * -0.5) * DENSITY
        return dy * (cumulative + x * density)
    square = x * x
    h = op.Tanh((square * (CUBE * ROOT) + ROOT) * x)
    inner = (square * (1.5 * CUBE * ROOT) + 0.5 * ROOT) * x
    return dy * ((h + 1.0) * 0.5 + inner * (1.0 - h * h))


@composite("HardSigmoidGrad")
def hard_sigmoid_grad(op, y, dy, *, alpha):
    """`dx = α dy` where `0 < y < 1`, else 0."""
    outside = op.Or(op.LessOrEqual(y, 0.0), op.GreaterOrEqual(y, 1.0))
    return op.Where(outside, 0.0, dy * alpha)


@composite("HardSwishGrad")
def hard_swish_grad(op, x, dy):
    """`dx = dy · (0 up to -3, 1 from 3 on, x/3 + 1/2 between)`."""
    slope = op.Where(op.LessOrEqual(x, -3.0), 0.0, x * (1 / 3) + 0.5)
    return dy * op.Where(op.GreaterOrEqual(x, 3.0), 1.0, slope)


@composite("SigmoidGrad")
def sigmoid_grad(op, y, dy):
    """`dx = dy · y (1 - y)`."""
    return dy * ((1.0 - y) * y)


@composite("TanhGrad")
def tanh_grad(op, y, dy):
    """`dx = dy · (1 - y²)`."""
    return dy * (1.0 - y * y)


@composite("SoftplusGrad")
def softplus_grad(op, x, dy):
    """`dx = dy · σ(x)`."""
    return dy * op.Sigmoid(x)


@composite("SoftsignGrad")
def softsign_grad(op, x, dy):
    """`dx = dy / (1 + |x|)²`."""
    root = op.Abs(x) + 1.0
    return dy / (root * root)


@composite("MishGrad")
def mish_grad(op, x, dy):
    """`dx = dy · (h + x σ(x) (1 - h²))` with `h = tanh(softplus x)`."""
    h = op.Tanh(op.Softplus(x))
    return dy * (h + x * op.Sigmoid(x) * (1.0 - h * h))


@composite("SwishGrad")
def swish_grad(op, x, dy, *, alpha):
    """`dx = dy · σ (1 + αx (1 - σ))` with `σ = 1 / (1 + exp(-αx))`."""
    z = x * alpha
    s = op.Sigmoid(z)
    return dy * (s * (z * (1.0 - s) + 1.0))


@composite("SoftmaxGrad")
def softmax_grad(op, y, dy, *, axis):
    """`dx = y · (dy - Σ y · dy)`."""
    return y * (dy - op.sum(y * dy, [axis], keepdims=True))


@composite("LogSoftmaxGrad")
def log_softmax_grad(op, y, dy, *, axis):
    """`dx = dy - exp(y) · Σ dy`."""
    return dy - op.Exp(y) * op.sum(dy, [axis], keepdims=True)


@composite("DropoutGrad", like=1)
def dropout_grad(op, mask, dy, scale):
    """`dx = scale · dy` where `mask` is true, else 0."""
    return op.Where(mask, dy * scale, 0.0)


@composite("MaskGrad", like=1)
def mask_grad(op, mask, dy):
    """`dx = dy` where `mask` is true, else 0."""
    return op.Where(mask, dy, 0.0)

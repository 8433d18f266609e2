"""Activations and their gradients, in terms of their result where it suffices."""

from __future__ import annotations

import math
from typing import Any

from gradtool.ops.formulas import elementwise, slope

ROOT_HALF = math.sqrt(0.5)
DENSITY = 1 / math.sqrt(2 * math.pi)
ROOT = math.sqrt(2 / math.pi)
CUBE = 0.044715
SELU_ALPHA = 1.67326319217681884765625
SELU_GAMMA = 1.05070102214813232421875


def _times(x: Any, factor: float) -> Any:
    return x if factor == 1 else x * factor


def _two_slopes(op: Any, x: Any, slope: Any) -> Any:
    return op.Min(x, 0) * slope + op.Max(x, 0)


def _exponential(op: Any, x: Any, alpha: float, beta: float, gamma: float) -> Any:
    """`γ max(x, 0) + α (exp(β min(x, 0)) - 1)`."""
    falling = _times(op.Expm1(_times(op.Min(x, 0), beta)), alpha)
    return falling + _times(op.Max(x, 0), gamma)


@elementwise("Relu", native="relu", apart=("kernel",))
def relu(op: Any, x: Any) -> Any:
    """`y = max(x, 0)`."""
    return op.Max(x, 0)


@slope("Relu", of="y", in_pieces=True, native="relu_grad")
def relu_grad(op: Any, y: Any, dy: Any) -> Any:
    """`y = max(x, 0)`:  dx = dy where y is positive, else 0."""
    return op.Where(op.LessOrEqual(y, 0.0), 0.0, dy)


# A selection counts its condition and one of its sides, whatever computes it.
@elementwise("LeakyRelu", counts=2, native=lambda op, x, alpha=0.01: _two_slopes(op, x, alpha))
def leaky_relu(op: Any, x: Any, *, alpha: float = 0.01) -> Any:
    """`y = x` where x is positive, else `α x`: the greater of both unless α is unusual."""
    return op.Max(x, x * alpha) if 0 < alpha <= 1 else _two_slopes(op, x, alpha)


@elementwise("ai.gradtool::LeakyReluGrad", in_pieces=True)
def leaky_relu_grad(op: Any, x: Any, dy: Any, *, alpha: float) -> Any:
    """`dx = dy`, and `α dy` where x is not positive."""
    return op.Where(op.LessOrEqual(x, 0.0), dy * alpha, dy)


@elementwise("PRelu", over=(0,), counts=2)
def prelu(op: Any, x: Any, slope: Any) -> Any:
    """`y = x` where x is positive, else `s x`."""
    return _two_slopes(op, x, slope)


@elementwise("ai.gradtool::PReluGrad", over=(0, 2))
def prelu_grad(op: Any, x: Any, slope: Any, dy: Any) -> Any:
    """`dx = dy`, and `slope · dy` where x is not positive."""
    return op.Where(op.LessOrEqual(x, 0.0), dy * slope, dy)


@elementwise("Elu", counts=4)
def elu(op: Any, x: Any, *, alpha: float = 1.0) -> Any:
    """`y = x` where x is positive, else `α (exp x - 1)`."""
    return _exponential(op, x, alpha, 1, 1)


@elementwise("Selu", counts=5)
def selu(op: Any, x: Any, *, alpha: float = SELU_ALPHA, gamma: float = SELU_GAMMA) -> Any:
    """`y = γ x` where x is positive, else `γ α (exp x - 1)`."""
    return _exponential(op, x, alpha * gamma, 1, gamma)


@elementwise("Celu", counts=5)
def celu(op: Any, x: Any, *, alpha: float = 1.0) -> Any:
    """`y = x` where x is positive, else `α (exp(x/α) - 1)`."""
    return _exponential(op, x, alpha, 1 / alpha, 1)


@elementwise("ai.gradtool::EluGrad", in_pieces=True)
def elu_grad(op: Any, y: Any, dy: Any, *, alpha: float, beta: float, gamma: float) -> Any:
    """`dx = γ dy`, and `β (y + α) dy` where y is not positive."""
    return op.Where(op.LessOrEqual(y, 0.0), _times(y + alpha, beta), gamma) * dy


@elementwise("ai.gradtool::DropoutGrad", over=(1,), in_pieces=True, apart=("native",))
def dropout_grad(op: Any, mask: Any, dy: Any, scale: Any) -> Any:
    """`dx = scale · dy` where `mask` is true, else 0; and forward, where the mask is counted."""
    return op.Where(mask, dy * scale, 0.0)


@elementwise("ai.gradtool::MaskGrad", over=(1,), in_pieces=True)
def mask_grad(op: Any, mask: Any, dy: Any) -> Any:
    """`dx = dy` where `mask` is true, else 0."""
    return op.Where(mask, dy, 0.0)


def _gelu_native(op: Any, *inputs: Any, approximate: str = "none") -> Any:
    name = "gelu_tanh" if approximate == "tanh" else "gelu"
    return op.emit(name if len(inputs) == 1 else f"{name}_grad", *inputs)


@elementwise("Gelu", native=_gelu_native)
def gelu(op: Any, x: Any, *, approximate: str = "none") -> Any:
    """`y = x Φ(x)`, or `x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2`."""
    cubic = (x * x * CUBE + 1.0) * ROOT * x
    h = op.Tanh(cubic) if approximate == "tanh" else op.Erf(x * ROOT_HALF)
    return (h + 1.0) * 0.5 * x


@slope("Gelu", of="x", in_pieces=True, native=_gelu_native)
def gelu_grad(op: Any, x: Any, dy: Any, *, approximate: str = "none") -> Any:
    """`y = x Φ(x)`:  dx = dy · (Φ(x) + x φ(x)); with approximate=tanh, that one's derivative."""
    if approximate == "none":
        cumulative = (op.Erf(x * ROOT_HALF) + 1.0) * 0.5
        density = op.Exp(x * x * -0.5) * DENSITY
        return dy * (cumulative + x * density)
    square = x * x
    h = op.Tanh((square * (CUBE * ROOT) + ROOT) * x)
    inner = (square * (1.5 * CUBE * ROOT) + 0.5 * ROOT) * x
    return dy * ((h + 1.0) * 0.5 + inner * (1.0 - h * h))


@elementwise("HardSigmoid")
def hard_sigmoid(op: Any, x: Any, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    """`y = max(0, min(1, α x + β))`."""
    return op.Clip(x * alpha + beta, 0, 1)


@slope("HardSigmoid", of="y", in_pieces=True)
def hard_sigmoid_grad(op: Any, y: Any, dy: Any, *, alpha: float = 0.2) -> Any:
    """`y = max(0, min(1, α x + β))`:  dx = α dy where `0 < y < 1`, else 0."""
    outside = op.Or(op.LessOrEqual(y, 0.0), op.GreaterOrEqual(y, 1.0))
    return op.Where(outside, 0.0, dy * alpha)


@elementwise("HardSwish", native="hard_swish")
def hard_swish(op: Any, x: Any) -> Any:
    """`y = x · max(0, min(1, x/6 + 1/2))`."""
    return x * op.Clip(x * (1 / 6) + 0.5, 0, 1)


@slope("HardSwish", of="x", in_pieces=True, native="hard_swish_grad", apart=("kernel",))
def hard_swish_grad(op: Any, x: Any, dy: Any) -> Any:
    """`y = x · max(0, min(1, x/6 + 1/2))`:  dx = dy · (x/3 + 1/2) between -3 and 3, then 0 or 1."""
    rising = op.Where(op.LessOrEqual(x, -3.0), 0.0, x * (1 / 3) + 0.5)
    return dy * op.Where(op.GreaterOrEqual(x, 3.0), 1.0, rising)


@elementwise("Sigmoid", native="sigmoid")
def sigmoid(op: Any, x: Any) -> Any:
    """`y = 1 / (1 + exp(-x))`."""
    return 1.0 / (op.Exp(-x) + 1.0)


@slope("Sigmoid", of="y", native="sigmoid_grad")
def sigmoid_grad(op: Any, y: Any, dy: Any) -> Any:
    """`y = 1 / (1 + exp(-x))`:  dx = dy · y (1 - y)."""
    return dy * ((1.0 - y) * y)


@slope("Tanh", of="y", native="tanh_grad")
def tanh_grad(op: Any, y: Any, dy: Any) -> Any:
    """`y = tanh x`:  dx = dy · (1 - y²)."""
    return dy * (1.0 - y * y)


@elementwise("Softplus", native="softplus")
def softplus(op: Any, x: Any) -> Any:
    """`y = log(1 + exp x)`."""
    return op.Log1p(op.Exp(-op.Abs(x))) + op.Max(x, 0)


@slope("Softplus", of="x")
def softplus_grad(op: Any, x: Any, dy: Any) -> Any:
    """`y = log(1 + exp x)`:  dx = dy · σ(x)."""
    return dy * op.Sigmoid(x)


@elementwise("Softsign")
def softsign(op: Any, x: Any) -> Any:
    """`y = x / (1 + |x|)`."""
    return x / (op.Abs(x) + 1.0)


@slope("Softsign", of="x")
def softsign_grad(op: Any, x: Any, dy: Any) -> Any:
    """`y = x / (1 + |x|)`:  dx = dy / (1 + |x|)²."""
    root = op.Abs(x) + 1.0
    return dy / (root * root)


@elementwise("Mish")
def mish(op: Any, x: Any) -> Any:
    """`y = x tanh(softplus x)`."""
    return op.Tanh(op.Softplus(x)) * x


@slope("Mish", of="x", in_pieces=True)
def mish_grad(op: Any, x: Any, dy: Any) -> Any:
    """`y = x h` with `h = tanh(softplus x)`:  dx = dy · (h + x σ(x) (1 - h²))."""
    h = op.Tanh(op.Softplus(x))
    return dy * (h + x * op.Sigmoid(x) * (1.0 - h * h))


def _swish_native(op: Any, x: Any, *, alpha: float = 1.0) -> Any:
    return x * op.Sigmoid(x * alpha)


@elementwise("Swish", native=_swish_native)
def swish(op: Any, x: Any, *, alpha: float = 1.0) -> Any:
    """`y = x / (1 + exp(-αx))`."""
    return x / (op.Exp(x * -alpha) + 1.0)


@slope("Swish", of="x", in_pieces=True)
def swish_grad(op: Any, x: Any, dy: Any, *, alpha: float = 1.0) -> Any:
    """`y = x σ(αx)`:  dx = dy · σ (1 + αx (1 - σ))."""
    z = x * alpha
    s = op.Sigmoid(z)
    return dy * (s * (z * (1.0 - s) + 1.0))


# In the library NaN is on neither side of a comparison: a selection would make it 0.
@elementwise("ThresholdedRelu", counts=1, apart=("native",))
def thresholded_relu(op: Any, x: Any, *, alpha: float = 1.0) -> Any:
    """`y = x` where x exceeds α, else 0."""
    return op.Where(op.LessOrEqual(x, alpha), 0, x)


@elementwise("Shrink", counts=4, apart=("native",))
def shrink(op: Any, x: Any, *, lambd: float = 0.5, bias: float = 0.0) -> Any:
    """`y = x + bias` below -lambd, `x - bias` above lambd, 0 between."""
    below = op.Where(op.Less(x, -lambd), x + bias, 0)
    return below + op.Where(op.Greater(x, lambd), x - bias, 0)

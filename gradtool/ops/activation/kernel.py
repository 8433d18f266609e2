"""Activations, some steps on a block that stays in cache."""

from __future__ import annotations

import math
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.ops.activation.kernel_erf import erf_into, spares
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.blocks import pointwise
from gradtool.ops.shared.select import drop, keep
from gradtool.ops.shared.types import Array, Arrays, Specs

SELU_ALPHA = 1.67326319217681884765625
SELU_GAMMA = 1.05070102214813232421875


@kernel("Relu", may_inplace=(0,), strided=True)
def relu(xp: Any, x: Array, *, out: Arrays, work: Arrays) -> None:
    """`max(x, 0)`; numpy's `maximum` of a number is slow, its `clip` isn't."""
    if x.dtype.kind in "iu":
        xp.maximum(x, 0, out=out[0])
    else:
        xp.clip(x, 0, xp.inf, out=out[0])


def _is_greatest(x: Array | Spec | float, *, alpha: float = 0.01) -> bool:
    """Whether LeakyRelu is the greater of its two sides."""
    return 0 < alpha <= 1


@pointwise("LeakyRelu", temporaries=lambda x, **a: 2 - _is_greatest(x, **a), may_inplace=(0,))
def leaky_relu(xp: Any, x: Array, out: Array, t: Array, *spare: Array, alpha: float = 0.01) -> None:
    if _is_greatest(x, alpha=alpha):
        xp.maximum(x, xp.multiply(x, alpha, out=t), out=out)
    else:
        _two_slopes(xp, x, alpha, out, t, *spare)


@pointwise("PRelu", temporaries=2, may_inplace=(0,))
def prelu(xp: Any, x: Array, slope: Array, out: Array, t: Array, s: Array) -> None:
    _two_slopes(xp, x, slope, out, t, s)


def _two_slopes(xp: Any, x: Array, slope: Array, out: Array, t: Array, s: Array) -> None:
    xp.multiply(xp.minimum(x, 0, out=t), slope, out=t)
    xp.add(xp.maximum(x, 0, out=s), t, out=out)


def _exponential(
    xp: Any, x: Array, out: Array, t: Array, alpha: float, beta: float, gamma: float
) -> None:
    """`γ max(x, 0) + α (exp(β min(x, 0)) - 1)`."""
    xp.minimum(x, 0, out=t)
    if beta != 1:
        xp.multiply(t, beta, out=t)
    xp.multiply(xp.expm1(t, out=t), alpha, out=t)
    xp.maximum(x, 0, out=out)
    if gamma != 1:
        xp.multiply(out, gamma, out=out)
    xp.add(out, t, out=out)


@pointwise("Elu", temporaries=1, may_inplace=(0,))
def elu(xp: Any, x: Array, out: Array, t: Array, *, alpha: float = 1.0) -> None:
    _exponential(xp, x, out, t, alpha, 1, 1)


@pointwise("Selu", temporaries=1, may_inplace=(0,))
def selu(
    xp: Any, x: Array, out: Array, t: Array, *, alpha: float = SELU_ALPHA, gamma: float = SELU_GAMMA
) -> None:
    _exponential(xp, x, out, t, alpha * gamma, 1, gamma)


@pointwise("Celu", temporaries=1, may_inplace=(0,))
def celu(xp: Any, x: Array, out: Array, t: Array, *, alpha: float = 1.0) -> None:
    _exponential(xp, x, out, t, alpha, 1 / alpha, 1)


@pointwise("Erf", temporaries=lambda x: 1 + spares(x), may_inplace=(0,))
def erf(xp: Any, x: Array, out: Array, *room: Array) -> None:
    *spare, t = room
    erf_into(xp, x, t, *spare)
    xp.copyto(out, t)


def _gelu_room(x: Spec, *, approximate: str = "none") -> int:
    return 1 if approximate == "tanh" else 1 + spares(x)


@pointwise("Gelu", temporaries=_gelu_room, may_inplace=(0,))
def gelu(xp: Any, x: Array, out: Array, *room: Array, approximate: str = "none") -> None:
    """`x Φ(x)`, or `x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2`."""
    *spare, t = room
    if approximate == "tanh":
        xp.multiply(x, x, out=t)
        xp.add(xp.multiply(t, 0.044715, out=t), 1, out=t)
        xp.multiply(t, math.sqrt(2 / math.pi), out=t)
        xp.tanh(xp.multiply(t, x, out=t), out=t)
    else:
        erf_into(xp, x, t, *spare, scale=math.sqrt(0.5))
    xp.multiply(xp.add(t, 1, out=t), 0.5, out=t)
    xp.multiply(t, x, out=out)


@pointwise("HardSigmoid", may_inplace=(0,))
def hard_sigmoid(xp: Any, x: Array, out: Array, *, alpha: float = 0.2, beta: float = 0.5) -> None:
    xp.add(xp.multiply(x, alpha, out=out), beta, out=out)
    out.clip(0, 1, out=out)


@pointwise("HardSwish", temporaries=1, may_inplace=(0,))
def hard_swish(xp: Any, x: Array, out: Array, t: Array) -> None:
    xp.add(xp.multiply(x, 1 / 6, out=t), 0.5, out=t)
    t.clip(0, 1, out=t)
    xp.multiply(x, t, out=out)


@pointwise("Sigmoid", may_inplace=(0,))
def sigmoid(xp: Any, x: Array, out: Array) -> None:
    xp.add(xp.exp(xp.negative(x, out=out), out=out), 1, out=out)
    xp.divide(1, out, out=out)


@pointwise("Swish", temporaries=1, may_inplace=(0,))
def swish(xp: Any, x: Array, out: Array, t: Array, *, alpha: float = 1.0) -> None:
    """`x / (1 + exp(-αx))`."""
    xp.add(xp.exp(xp.multiply(x, -alpha, out=t), out=t), 1, out=t)
    xp.divide(x, t, out=out)


@pointwise("Softplus", temporaries=1, may_inplace=(0,))
def softplus(xp: Any, x: Array, out: Array, t: Array) -> None:
    softplus_into(xp, x, t)
    xp.add(t, xp.maximum(x, 0, out=out), out=out)


def softplus_into(xp: Any, x: Array, t: Array) -> None:
    """`t = log(1 + exp(-|x|))`, which is softplus less `max(x, 0)`."""
    xp.negative(xp.absolute(x, out=t), out=t)
    xp.log1p(xp.exp(t, out=t), out=t)


@pointwise("Softsign", temporaries=1, may_inplace=(0,))
def softsign(xp: Any, x: Array, out: Array, t: Array) -> None:
    xp.add(xp.absolute(x, out=t), 1, out=t)
    xp.divide(x, t, out=out)


@pointwise("Mish", temporaries=2, may_inplace=(0,))
def mish(xp: Any, x: Array, out: Array, t: Array, s: Array) -> None:
    """`x tanh(softplus x)`."""
    softplus_into(xp, x, t)
    xp.add(t, xp.maximum(x, 0, out=s), out=t)
    xp.multiply(xp.tanh(t, out=t), x, out=out)


@pointwise("ThresholdedRelu", temporaries=1, masks=1, may_inplace=(0,))
def thresholded_relu(
    xp: Any, x: Array, out: Array, t: Array, mask: Array, *, alpha: float = 1.0
) -> None:
    drop(xp, xp.less_equal(x, alpha, out=mask), x, out, t)


@pointwise("Shrink", temporaries=3, masks=2, may_inplace=(0,))
def shrink(
    xp: Any,
    x: Array,
    out: Array,
    t: Array,
    s: Array,
    u: Array,
    below: Array,
    above: Array,
    *,
    lambd: float = 0.5,
    bias: float = 0.0,
) -> None:
    """`x + bias` below -lambd, `x - bias` above lambd, 0 between."""
    xp.less(x, -lambd, out=below)
    xp.greater(x, lambd, out=above)
    keep(xp, below, xp.add(x, bias, out=u), s, t)
    keep(xp, above, xp.subtract(x, bias, out=u), out, t)
    xp.add(out, s, out=out)


def _hardmax_bytes(x: Spec, *, out: Specs, axis: int = -1) -> int:
    return 5 * 8 * math.prod(x.shape) // max(x.shape[axis], 1)


@kernel("Hardmax", temporaries=_hardmax_bytes)
def hardmax(xp: Any, x: Array, *, axis: int = -1) -> Array:
    """One at the first of the largest elements, else zero."""
    y = xp.zeros_like(x)
    xp.put_along_axis(y, xp.expand_dims(xp.argmax(x, axis=axis), axis), 1, axis)
    return y

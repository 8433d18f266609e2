"""Kernels of the gradients of activations."""

from __future__ import annotations

import math
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.ops.activation.kernel_erf import erf_into
from gradtool.ops.shared.blocks import pointwise
from gradtool.ops.shared.select import choose, drop, keep
from gradtool.ops.shared.types import Array

ROOT_HALF = math.sqrt(0.5)
DENSITY = 1 / math.sqrt(2 * math.pi)
ROOT = math.sqrt(2 / math.pi)
CUBE = 0.044715


def _sigmoid(xp: Any, x: Array, out: Array) -> None:
    xp.add(xp.exp(xp.negative(x, out=out), out=out), 1, out=out)
    xp.divide(1, out, out=out)


@pointwise("ai.gradtool::ReluGrad", temporaries=1, masks=1, may_inplace=(0, 1))
def relu_grad(xp: Any, y: Array, dy: Array, out: Array, t: Array, mask: Array) -> None:
    drop(xp, xp.less_equal(y, 0, out=mask), dy, out, t)


@pointwise("ai.gradtool::MaskGrad", temporaries=1, masks=1, may_inplace=(1,))
def mask_grad(xp: Any, mask: Array, dy: Array, out: Array, t: Array, own: Array) -> None:
    xp.copyto(own, mask)
    keep(xp, own, dy, out, t)


@pointwise("ai.gradtool::LeakyReluGrad", temporaries=3, masks=1, may_inplace=(0, 1))
def leaky_relu_grad(
    xp: Any,
    x: Array,
    dy: Array,
    out: Array,
    t: Array,
    s: Array,
    u: Array,
    mask: Array,
    *,
    alpha: float,
) -> None:
    """The gradient: dy where x > 0, alpha · dy elsewhere."""
    xp.less_equal(x, 0, out=mask)
    choose(xp, mask, xp.multiply(dy, alpha, out=u), dy, out, t, s)


@pointwise("ai.gradtool::PReluGrad", temporaries=3, masks=1, may_inplace=(0, 2))
def prelu_grad(
    xp: Any,
    x: Array,
    slope: Array,
    dy: Array,
    out: Array,
    t: Array,
    s: Array,
    u: Array,
    mask: Array,
) -> None:
    """The gradient: dy where x > 0, slope · dy elsewhere."""
    xp.less_equal(x, 0, out=mask)
    choose(xp, mask, xp.multiply(dy, slope, out=u), dy, out, t, s)


@pointwise("ai.gradtool::EluGrad", temporaries=3, masks=1, may_inplace=(0, 1))
def elu_grad(
    xp: Any,
    y: Array,
    dy: Array,
    out: Array,
    t: Array,
    s: Array,
    u: Array,
    mask: Array,
    *,
    alpha: float,
    beta: float,
    gamma: float,
) -> None:
    """`dx = γ dy` where y is positive, else `β (y + α) dy`."""
    xp.less_equal(y, 0, out=mask)
    xp.add(y, alpha, out=u)
    if beta != 1:
        xp.multiply(u, beta, out=u)
    choose(xp, mask, u, xp.asarray(gamma, u.dtype), u, t, s)
    xp.multiply(u, dy, out=out)


def _gelu_room(x: Spec, dy: Spec, *, approximate: str = "none") -> int:
    return 3 if approximate == "tanh" else 2


@pointwise("ai.gradtool::GeluGrad", temporaries=_gelu_room, may_inplace=(0, 1))
def gelu_grad(
    xp: Any,
    x: Array,
    dy: Array,
    out: Array,
    t: Array,
    s: Array,
    *spare: Array,
    approximate: str = "none",
) -> None:
    """The gradient: dy · gelu'(x), by erf or by tanh."""
    if approximate == "tanh":
        _gelu_slope_tanh(xp, x, t, s, *spare)
    else:
        erf_into(xp, x, t, s, scale=ROOT_HALF)
        xp.multiply(xp.add(t, 1, out=t), 0.5, out=t)
        xp.multiply(xp.multiply(x, x, out=s), -0.5, out=s)
        xp.multiply(xp.exp(s, out=s), DENSITY, out=s)
        xp.add(t, xp.multiply(s, x, out=s), out=t)
    xp.multiply(t, dy, out=out)


def _gelu_slope_tanh(xp: Any, x: Array, t: Array, s: Array, u: Array) -> None:
    """`t = (1 + h)/2 + x/2 (1 - h²) c (1 + 3·0.044715 x²)`, `h = tanh(c x (1 + 0.044715 x²))`."""
    xp.multiply(x, x, out=s)
    xp.add(xp.multiply(s, CUBE * ROOT, out=t), ROOT, out=t)
    xp.tanh(xp.multiply(t, x, out=t), out=t)
    xp.add(xp.multiply(s, 1.5 * CUBE * ROOT, out=s), 0.5 * ROOT, out=s)
    xp.multiply(s, x, out=s)
    xp.subtract(1, xp.multiply(t, t, out=u), out=u)
    xp.multiply(s, u, out=s)
    xp.multiply(xp.add(t, 1, out=t), 0.5, out=t)
    xp.add(t, s, out=t)


@pointwise("ai.gradtool::HardSigmoidGrad", temporaries=2, masks=2, may_inplace=(0, 1))
def hard_sigmoid_grad(
    xp: Any,
    y: Array,
    dy: Array,
    out: Array,
    t: Array,
    s: Array,
    mask: Array,
    other: Array,
    *,
    alpha: float,
) -> None:
    """The gradient: alpha · dy where 0 < y < 1, and 0 elsewhere."""
    xp.logical_or(xp.less_equal(y, 0, out=mask), xp.greater_equal(y, 1, out=other), out=mask)
    drop(xp, mask, xp.multiply(dy, alpha, out=s), out, t)


@pointwise("ai.gradtool::HardSwishGrad", temporaries=2, masks=2, may_inplace=(0, 1))
def hard_swish_grad(
    xp: Any, x: Array, dy: Array, out: Array, t: Array, s: Array, mask: Array, above: Array
) -> None:
    """The slope is 0 up to -3, 1 from 3 on, and `x/3 + 1/2` between."""
    xp.greater_equal(x, 3, out=above)
    xp.logical_or(xp.less_equal(x, -3, out=mask), above, out=mask)
    xp.add(xp.multiply(x, 1 / 3, out=s), 0.5, out=s)
    drop(xp, mask, s, s, t)
    xp.copyto(t, above)
    xp.multiply(xp.add(s, t, out=s), dy, out=out)


@pointwise("ai.gradtool::SigmoidGrad", temporaries=1, may_inplace=(0, 1))
def sigmoid_grad(xp: Any, y: Array, dy: Array, out: Array, t: Array) -> None:
    xp.multiply(xp.subtract(1, y, out=t), y, out=t)
    xp.multiply(t, dy, out=out)


@pointwise("ai.gradtool::TanhGrad", temporaries=1, may_inplace=(0, 1))
def tanh_grad(xp: Any, y: Array, dy: Array, out: Array, t: Array) -> None:
    xp.subtract(1, xp.multiply(y, y, out=t), out=t)
    xp.multiply(t, dy, out=out)


@pointwise("ai.gradtool::SoftplusGrad", temporaries=1, may_inplace=(0, 1))
def softplus_grad(xp: Any, x: Array, dy: Array, out: Array, t: Array) -> None:
    _sigmoid(xp, x, t)
    xp.multiply(t, dy, out=out)


@pointwise("ai.gradtool::SoftsignGrad", temporaries=1, may_inplace=(0, 1))
def softsign_grad(xp: Any, x: Array, dy: Array, out: Array, t: Array) -> None:
    xp.add(xp.absolute(x, out=t), 1, out=t)
    xp.divide(dy, xp.multiply(t, t, out=t), out=out)


@pointwise("ai.gradtool::MishGrad", temporaries=3, may_inplace=(0, 1))
def mish_grad(xp: Any, x: Array, dy: Array, out: Array, t: Array, s: Array, u: Array) -> None:
    """The slope is `h + x σ(x) (1 - h²)` with `h = tanh(softplus x)`."""
    xp.negative(xp.absolute(x, out=t), out=t)
    xp.log1p(xp.exp(t, out=t), out=t)
    xp.tanh(xp.add(t, xp.maximum(x, 0, out=s), out=t), out=t)
    _sigmoid(xp, x, s)
    xp.multiply(s, x, out=s)
    xp.subtract(1, xp.multiply(t, t, out=u), out=u)
    xp.add(t, xp.multiply(s, u, out=s), out=t)
    xp.multiply(t, dy, out=out)


@pointwise("ai.gradtool::SwishGrad", temporaries=3, may_inplace=(0, 1))
def swish_grad(
    xp: Any, x: Array, dy: Array, out: Array, t: Array, s: Array, u: Array, *, alpha: float
) -> None:
    """The slope is `σ (1 + αx (1 - σ))` with `σ = 1 / (1 + exp(-αx))`."""
    xp.multiply(x, alpha, out=s)
    _sigmoid(xp, s, t)
    xp.subtract(1, t, out=u)
    xp.add(xp.multiply(u, s, out=u), 1, out=u)
    xp.multiply(u, t, out=u)
    xp.multiply(u, dy, out=out)

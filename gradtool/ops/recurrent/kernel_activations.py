"""Values and slopes of the activations of recurrent operators, in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradtool.operators.activations import Activation
from gradtool.ops.shared.types import Array

SPARED = {"leakyrelu", "elu", "softsign"}  # activations whose value takes a spare buffer
FLAGGED = {"relu", "leakyrelu", "thresholdedrelu", "hardsigmoid", "elu"}  # whose slope takes flags


def sigmoid(xp: Any, a: Array) -> None:
    """`a = 1 / (1 + exp(-a))`, as a tanh: it cannot overflow."""
    xp.multiply(a, 0.5, out=a)
    xp.tanh(a, out=a)
    xp.multiply(a, 0.5, out=a)
    xp.add(a, 0.5, out=a)


def value(xp: Any, act: Activation, a: Array, spare: Array | None, flags: Array | None) -> None:
    """`a = act(a)`; `spare` and `flags` have its shape and are overwritten."""
    match act.name:
        case "sigmoid":
            sigmoid(xp, a)
        case "tanh":
            xp.tanh(a, out=a)
        case "relu":
            xp.maximum(a, 0, out=a)
        case "leakyrelu" | "elu":
            xp.minimum(a, 0, out=spare)
            if act.name == "elu":
                xp.expm1(spare, out=spare)
            xp.multiply(spare, act.alpha, out=spare)
            xp.maximum(a, 0, out=a)
            xp.add(a, spare, out=a)
        case "thresholdedrelu":
            xp.less(a, act.alpha, out=flags)
            xp.copyto(a, 0, where=flags)
        case "softsign":
            xp.absolute(a, out=spare)
            xp.add(spare, 1, out=spare)
            xp.divide(a, spare, out=a)
        case "softplus":
            xp.logaddexp(a, 0, out=a)
        case _:
            _scaled(xp, act, a)


def _scaled(xp: Any, act: Activation, a: Array) -> None:
    """ScaledTanh, Affine, and HardSigmoid, which clips the latter."""
    if act.name == "scaledtanh":
        xp.multiply(a, act.beta, out=a)
        xp.tanh(a, out=a)
        xp.multiply(a, act.alpha, out=a)
        return
    xp.multiply(a, act.alpha, out=a)
    xp.add(a, act.beta, out=a)
    if act.name == "hardsigmoid":
        xp.clip(a, 0, 1, out=a)


def slope(xp: Any, act: Activation, d: Array, y: Array, flags: Array | None) -> None:
    """`d = act'(d)`, given `y = act(d)`.  At a kink: 0, or the slope of the left side."""
    match act.name:
        case "sigmoid":
            xp.subtract(1, y, out=d)
            xp.multiply(d, y, out=d)
        case "tanh":
            xp.multiply(y, y, out=d)
            xp.subtract(1, d, out=d)
        case "affine":
            d[...] = act.alpha
        case "relu" | "leakyrelu" | "thresholdedrelu":
            xp.greater(d, act.alpha if act.name == "thresholdedrelu" else 0, out=flags)
            d[...] = act.alpha if act.name == "leakyrelu" else 0
            xp.copyto(d, 1, where=flags)
        case "scaledtanh":
            xp.multiply(d, act.beta, out=d)
            xp.tanh(d, out=d)
            xp.multiply(d, d, out=d)
            xp.subtract(1, d, out=d)
            xp.multiply(d, act.alpha * act.beta, out=d)
        case "hardsigmoid":
            xp.subtract(1, y, out=d)
            xp.multiply(d, y, out=d)
            xp.greater(d, 0, out=flags)
            d[...] = 0
            xp.copyto(d, act.alpha, where=flags)
        case "elu":
            xp.greater(d, 0, out=flags)
            xp.minimum(d, 0, out=d)
            xp.exp(d, out=d)
            xp.multiply(d, act.alpha, out=d)
            xp.copyto(d, 1, where=flags)
        case "softsign":
            xp.absolute(y, out=d)
            xp.subtract(1, d, out=d)
            xp.multiply(d, d, out=d)
        case _:
            xp.negative(y, out=d)
            xp.expm1(d, out=d)
            xp.negative(d, out=d)


def temporaries(acts: Iterator[Any], clip: float | None, *, slopes: bool) -> tuple[bool, bool]:
    """Whether `activate` needs `spare`, and whether `flags`, for one of these activations."""
    if slopes and clip is not None:
        return True, True
    names = {act.name for act in acts}
    return bool(names & SPARED), bool(names & (FLAGGED if slopes else {"thresholdedrelu"}))


def activate(
    xp: Any,
    act: Activation,
    clip: float | None,
    a: Array,
    d: Array | None,
    spare: Array | None,
    flags: Array | None,
) -> None:
    """`a = act(clipped a)` and, unless `d` is None, `d` = the slope of that at `a`.

    On the bounds of the clip the slope is that of the inside.  `spare` and `flags` may be None
    where `temporaries` says so.
    """
    if clip is not None and d is None:
        xp.clip(a, -clip, clip, out=a)
    if d is None:
        value(xp, act, a, spare, flags)
        return
    if clip is not None:
        xp.copyto(d, a)
        xp.clip(a, -clip, clip, out=a)
        value(xp, act, a, spare, flags)
        xp.copyto(spare, d)
        xp.clip(d, -clip, clip, out=d)
        slope(xp, act, d, a, flags)
        xp.absolute(spare, out=spare)
        xp.greater(spare, clip, out=flags)
        xp.copyto(d, 0, where=flags)
        return
    xp.copyto(d, a)
    value(xp, act, a, spare, flags)
    slope(xp, act, d, a, flags)

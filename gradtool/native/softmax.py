"""Softmax, its logarithm and their gradients; no workspace."""

from __future__ import annotations

import math

from gradtool.native.call import Array, Call, Signature

SOFTMAX = Signature("softmax", "from out", "before n after log slots")
SOFTMAX_GRAD = Signature("softmax_grad", "from dy out", "before n after log slots")


def _sizes(shape: tuple[int, ...], axis: int) -> dict[str, int]:
    axis %= len(shape)
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    return {"before": before, "n": shape[axis], "after": after}


def softmax(x: Array, y: Array, *, axis: int = -1, log: bool = False) -> Call:
    """`y = exp(x - max x) / Σ exp(x - max x)`, or the logarithm of it; y may be x."""
    operands = {"from": x, "out": y}
    return SOFTMAX.bind(**operands, log=int(log), **_sizes(x.shape, axis))


def softmax_grad(y: Array, dy: Array, dx: Array, *, axis: int = -1, log: bool = False) -> Call:
    """`dx = y · (dy - Σ y · dy)`, or `dy - exp(y) · Σ dy`; dx may be one of the inputs."""
    operands = {"from": y, "dy": dy, "out": dx}
    return SOFTMAX_GRAD.bind(**operands, log=int(log), **_sizes(y.shape, axis))

"""Activations whose kernels do not follow from their formulas."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.blocks import pointwise
from gradtool.ops.shared.select import drop
from gradtool.ops.shared.sums import (
    accumulator,
    fitted,
    folded,
    line_sum,
    line_work,
    lines,
    ones_work,
)
from gradtool.ops.shared.types import Array, Arrays


@kernel("Relu", may_inplace=(0,), strided=True)
def relu(xp: Any, x: Array, *, out: Arrays) -> None:
    """`max(x, 0)`; numpy's `maximum` of a number is slow, its `clip` isn't."""
    if x.dtype.kind in "iu":
        xp.maximum(x, 0, out=out[0])
    else:
        xp.clip(x, 0, xp.inf, out=out[0])


# By its formula 21 % slower, with a third more workspace: it selects twice.
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


@kernel(
    "Hardmax", temporaries=lambda x, *, axis=-1: 5 * 8 * math.prod(x.shape) // max(x.shape[axis], 1)
)
def hardmax(xp: Any, x: Array, *, axis: int = -1) -> Array:
    """One at the first of the largest elements, else zero."""
    y = xp.zeros_like(x)
    xp.put_along_axis(y, xp.expand_dims(xp.argmax(x, axis=axis), axis), 1, axis)
    return y


def _shifted(xp: Any, x: Array, out: Array, stat: Array) -> None:
    """`out = x - max x` along the middle axis."""
    xp.amax(x, axis=1, out=stat, keepdims=True)
    xp.subtract(x, stat, out=out, dtype=out.dtype)


def _parts(arrays: Arrays, axis: int) -> tuple[list[Array], Iterator[Any]]:
    """The arrays as `[before, n, after]`, and where their lines are."""
    sizes = folded(arrays[0].shape, axis)
    return [a.reshape(sizes) for a in arrays], lines(*sizes)


def _softmax_work(x: Spec, *, axis: int = -1) -> list[Spec]:
    narrow = accumulator(x.dtype) != x.dtype
    return [*ones_work(x, axis), *line_work(x, axis, int(narrow), 1)]


@kernel("Softmax", may_inplace=(0,), work=_softmax_work)
def softmax(xp: Any, x: Array, *, out: Arrays, work: Arrays, axis: int = -1) -> None:
    """`y = exp(x - max x) / Σ exp(x - max x)`."""
    (x, y), where = _parts((x, out[0]), axis)
    ones, *narrow, stats = work
    for index in where:
        part = y[index]
        stat = fitted(stats, (part.shape[0], 1, part.shape[2]))
        e = fitted(narrow[0], part.shape) if narrow else part
        _shifted(xp, x[index], e, stat)
        xp.exp(e, out=e)
        line_sum(xp, e, stat, ones)
        xp.divide(e, stat, out=part, casting="unsafe")


def _grad_work(y: Spec, *, axis: int) -> list[Spec]:
    return [*ones_work(y, axis), *line_work(y, axis, 1, 1)]


def _grad_parts(
    y: Array, dy: Array, out: Arrays, work: Arrays, axis: int
) -> Iterator[tuple[Array, ...]]:
    """By block of lines: y, dy, dx, a temporary of their size, and one number for each line."""
    (y, dy, dx), where = _parts((y, dy, out[0]), axis)
    _, block, stats = work
    for index in where:
        part = dx[index]
        stat = fitted(stats, (part.shape[0], 1, part.shape[2]))
        yield y[index], dy[index], part, fitted(block, part.shape), stat


@kernel("ai.gradtool::SoftmaxGrad", may_inplace=(0, 1), work=_grad_work)
def softmax_grad(xp: Any, y: Array, dy: Array, *, out: Arrays, work: Arrays, axis: int) -> None:
    """`dx = y · (dy - Σ y · dy)`."""
    for of, d, part, t, stat in _grad_parts(y, dy, out, work, axis):
        xp.multiply(of, d, out=t, dtype=t.dtype)
        line_sum(xp, t, stat, work[0])
        xp.subtract(d, stat, out=t, dtype=t.dtype)
        xp.multiply(t, of, out=part, dtype=t.dtype, casting="unsafe")


def _log_softmax_work(x: Spec, *, axis: int = -1) -> list[Spec]:
    narrow = accumulator(x.dtype) != x.dtype
    return [*ones_work(x, axis), *line_work(x, axis, 1 + int(narrow), 1)]


@kernel("LogSoftmax", may_inplace=(0,), work=_log_softmax_work)
def log_softmax(xp: Any, x: Array, *, out: Arrays, work: Arrays, axis: int = -1) -> None:
    """`y = x - max x - log Σ exp(x - max x)`."""
    (x, y), where = _parts((x, out[0]), axis)
    ones, *narrow, block, stats = work
    for index in where:
        part = y[index]
        stat = fitted(stats, (part.shape[0], 1, part.shape[2]))
        z = fitted(narrow[0], part.shape) if narrow else part
        e = fitted(block, part.shape)
        _shifted(xp, x[index], z, stat)
        xp.exp(z, out=e)
        line_sum(xp, e, stat, ones)
        xp.subtract(z, xp.log(stat, out=stat), out=part, casting="unsafe")


@kernel("ai.gradtool::LogSoftmaxGrad", may_inplace=(0, 1), work=_grad_work)
def log_softmax_grad(xp: Any, y: Array, dy: Array, *, out: Arrays, work: Arrays, axis: int) -> None:
    """`dx = dy - exp(y) · Σ dy`."""
    for of, d, part, t, stat in _grad_parts(y, dy, out, work, axis):
        xp.copyto(t, d)
        line_sum(xp, t, stat, work[0])
        xp.exp(of, out=t, dtype=t.dtype)
        xp.multiply(t, stat, out=t)
        xp.subtract(d, t, out=part, dtype=t.dtype, casting="unsafe")

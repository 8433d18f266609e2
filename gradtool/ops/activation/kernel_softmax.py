"""Softmax, its logarithm and their gradients, along any axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.lines import fitted, folded, line_sum, line_work, lines, ones_work
from gradtool.ops.shared.sums import accumulator
from gradtool.ops.shared.types import Array, Arrays


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


@kernel("ai.gradtool::SoftmaxGrad", may_inplace=(0, 1), work=_grad_work)
def softmax_grad(xp: Any, y: Array, dy: Array, *, out: Arrays, work: Arrays, axis: int) -> None:
    """`dx = y · (dy - Σ y · dy)`."""
    (y, dy, dx), where = _parts((y, dy, out[0]), axis)
    ones, block, stats = work
    for index in where:
        part = dx[index]
        t = fitted(block, part.shape)
        stat = fitted(stats, (part.shape[0], 1, part.shape[2]))
        xp.multiply(y[index], dy[index], out=t, dtype=t.dtype)
        line_sum(xp, t, stat, ones)
        xp.subtract(dy[index], stat, out=t, dtype=t.dtype)
        xp.multiply(t, y[index], out=part, dtype=t.dtype, casting="unsafe")


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
    (y, dy, dx), where = _parts((y, dy, out[0]), axis)
    ones, block, stats = work
    for index in where:
        part = dx[index]
        t = fitted(block, part.shape)
        stat = fitted(stats, (part.shape[0], 1, part.shape[2]))
        xp.copyto(t, dy[index])
        line_sum(xp, t, stat, ones)
        xp.exp(y[index], out=t, dtype=t.dtype)
        xp.multiply(t, stat, out=t)
        xp.subtract(dy[index], t, out=part, dtype=t.dtype, casting="unsafe")

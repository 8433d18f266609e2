"""Reductions over any set of axes, and running sums."""

from __future__ import annotations

import math

from gradtool.exec.kernel import kernel
from gradtool.exec.kernels._sums import reduce_into, reduced_axes, sum_into, sum_work


def _axes(x, axes, noop):
    return reduced_axes(len(x.shape), axes, noop)


def _sum_work(x, axes=None, *, out, keepdims=1, noop_with_empty_axes=0):
    return sum_work(x, _axes(x, axes, noop_with_empty_axes), out[0])


@kernel("ReduceSum", strided=True, host=(1,), work=_sum_work)
def reduce_sum(xp, x, axes=None, *, out, work, keepdims=1, noop_with_empty_axes=0):
    """`y = Σ x` over the axes."""
    sum_into(xp, x, _axes(x, axes, noop_with_empty_axes), out[0], work)


@kernel("ReduceMean", strided=True, host=(1,), work=_sum_work)
def reduce_mean(xp, x, axes=None, *, out, work, keepdims=1, noop_with_empty_axes=0):
    """`y = Σ x / n`."""
    axes = _axes(x, axes, noop_with_empty_axes)
    count = math.prod(x.shape[a] for a in axes)
    sum_into(xp, x, axes, out[0], work, lambda total: xp.divide(total, count, out=total))


def _extreme(name, function, empty):
    @kernel(name, strided=True, host=(1,))
    def run(xp, x, axes=None, *, out, work, keepdims=1, noop_with_empty_axes=0):
        axes = _axes(x, axes, noop_with_empty_axes)
        if 0 in x.shape:
            out[0].fill(_limit(xp, x.dtype, empty))
        else:
            reduce_into(xp, getattr(xp, function), x, axes, out[0])

    return run


def _limit(xp, dtype, sign):
    if dtype.kind == "b":
        return sign > 0
    if dtype.kind in "iu":
        return xp.iinfo(dtype).max if sign > 0 else xp.iinfo(dtype).min
    return sign * math.inf


_extreme("ReduceMax", "amax", -1)
_extreme("ReduceMin", "amin", 1)


@kernel("ReduceProd", strided=True, host=(1,))
def reduce_prod(xp, x, axes=None, *, out, work, keepdims=1, noop_with_empty_axes=0):
    """`y = Π x` over the axes."""
    axes = _axes(x, axes, noop_with_empty_axes)
    reduce_into(xp, xp.prod, x, axes, out[0], dtype=out[0].dtype)

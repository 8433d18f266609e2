"""Kernels of the gradients of reductions; `y` and `dy` have the reduced axes, of size one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.blocks import pointwise
from gradtool.ops.shared.sums import accumulator, blocks, mapped_sum, mapped_work
from gradtool.ops.shared.types import Array, Arrays, Index


def _extreme_work(x: Spec, y: Spec, *, axes: Sequence[int]) -> list[Spec]:
    wide = accumulator(x.dtype)
    return [Spec(y.shape, wide), *mapped_work(x, axes, Spec(y.shape, wide), wide)]


@kernel("ai.gradtool::ReduceExtremeGrad", may_inplace=(0,), strided=True, work=_extreme_work)
def reduce_extreme_grad(
    xp: Any, x: Array, y: Array, dy: Array, *, out: Arrays, work: Arrays, axes: Sequence[int]
) -> None:
    """`dx = dy / k` at the k elements that equal y, else 0; `out` may be x."""
    share, *work = work

    def hits(index: Index, t: Array) -> None:
        xp.equal(x[index], y[_place(index, axes)], out=t)

    mapped_sum(xp, x, axes, hits, share, work)
    xp.divide(dy, share, out=share)
    for index in blocks(x.shape):
        part = out[0][index]
        hit = work[0][: part.size].reshape(part.shape)
        hits(index, hit)
        xp.multiply(hit, share[_place(index, axes)], out=part, casting="unsafe")


def _place(index: Index, axes: Sequence[int]) -> Index:
    """Index of a block of x in an array whose axes `axes` have size one."""
    return tuple(slice(None) if i in axes else s for i, s in enumerate(index))


@pointwise("ai.gradtool::ReduceLogSumExpGrad", temporaries=1, may_inplace=(0,))
def reduce_log_sum_exp_grad(xp: Any, x: Array, y: Array, dy: Array, out: Array, t: Array) -> None:
    xp.exp(xp.subtract(x, y, out=t), out=t)
    xp.multiply(t, dy, out=out)


@kernel("ai.gradtool::ReduceProdGrad", temporaries=lambda x: 3 * x.bytes)
def reduce_prod_grad(xp: Any, x: Array, dy: Array, *, axes: Sequence[int]) -> Array:
    """`dxᵢ = dy · (Π xⱼ before i) · (Π xⱼ after i)`."""
    front = tuple(range(len(axes)))
    moved = xp.moveaxis(x, axes, front)
    cut = len(axes)
    column = moved.reshape(math.prod(moved.shape[:cut]), math.prod(moved.shape[cut:]))
    dtype = x.dtype if xp is np else accumulator(x.dtype)  # CuPy's products have no bfloat16
    others = xp.ones(column.shape, dtype)
    running = xp.ones(column.shape, dtype)
    if len(column) > 1:
        xp.cumprod(column[:-1], axis=0, out=others[1:])
        xp.cumprod(column[:0:-1], axis=0, out=running[-2::-1])
    xp.multiply(others, running, out=others)
    return dy * xp.moveaxis(others.reshape(moved.shape), front, axes)


def _oriented(arrays: Arrays, axis: Array, reverse: int) -> Iterator[Array]:
    """Arrays with the axis first, in the order of the products."""
    axis = int(np.ravel(axis)[0]) % arrays[0].ndim
    for array in arrays:
        first = array.swapaxes(0, axis)
        yield first[::-1] if reverse else first


@kernel("CumProd", host=(1,), strided=True)
def cum_prod(
    xp: Any, x: Array, axis: Array, *, out: Arrays, exclusive: int = 0, reverse: int = 0
) -> None:
    """`y[i] = Π x[j]` over the j up to i, or before i if exclusive."""
    x, y = _oriented((x, out[0]), axis, reverse)
    if not len(x):
        return
    if exclusive:
        y[0, ...] = 1
    else:
        xp.copyto(y[0, ...], x[0, ...])
    for i in range(1, len(x)):
        xp.multiply(y[i - 1, ...], x[i - 1 if exclusive else i, ...], out=y[i, ...])


def _line(x: Spec, axis: Array) -> list[Spec]:
    """The elements at one place of the axis; for a shortest one, if it is not known."""
    known = isinstance(axis, np.ndarray)
    length = x.shape[int(axis.flat[0])] if known else min(x.shape)
    size = 0 if known and length < 2 else math.prod(x.shape) // max(1, length)
    return [Spec((size,), x.dtype)]


@kernel("ai.gradtool::CumProdGrad", host=(1,), strided=True, work=_line)
def cum_prod_grad(
    xp: Any, x: Array, axis: Array, dy: Array, *,
    out: Arrays, work: Arrays, exclusive: int = 0, reverse: int = 0,
) -> None:  # fmt: skip
    """`dx[i] = (Π x before i) · s[i]` with `s[i] = dy[i] + x[i + 1] s[i + 1]`.

    If exclusive, `s[i] = dy[i + 1] + x[i + 1] s[i + 1]`.
    """
    x, dy, dx = _oriented((x, dy, out[0]), axis, reverse)
    if not len(x):
        return
    dx[-1] = 0 if exclusive else dy[-1]
    for i in range(len(x) - 2, -1, -1):
        xp.multiply(x[i + 1, ...], dx[i + 1, ...], out=dx[i, ...])
        dx[i] += dy[i + 1 if exclusive else i]
    if len(x) < 2:
        return
    before = work[0][: x[0].size].reshape(x[0].shape)
    xp.copyto(before, x[0])
    for i in range(1, len(x)):
        dx[i] *= before
        before *= x[i]

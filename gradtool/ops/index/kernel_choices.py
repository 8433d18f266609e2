"""Operators that return indices, or outputs of data-dependent sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array, Arrays

INT64 = np.dtype(np.int64)
SORTED = 32768  # elements sorted at a time


def _extreme_work(x: Spec, *, axis: int = 0, select_last_index: int = 0) -> list[Spec]:
    axis %= len(x.shape)
    if axis == len(x.shape) - 1 and not select_last_index:
        return []
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    return [Spec(shape, x.dtype), Spec(shape, np.dtype(np.bool_))]


def _extreme(name: str, find: str, better: str) -> None:
    @kernel(name, work=_extreme_work)
    def run(
        xp: Any, x: Array, *,
        out: Arrays, work: Arrays, axis: int = 0, keepdims: int = 1, select_last_index: int = 0,
    ) -> None:  # fmt: skip
        """The first (or last) index of the extreme element along `axis`."""
        index = out[0].reshape(x.shape[: axis % x.ndim] + x.shape[axis % x.ndim + 1 :])
        if not work:
            getattr(xp, find)(x, axis=-1, out=index)
            return
        best, wins = work
        index.fill(0)
        lines = xp.moveaxis(x, axis, 0)
        if select_last_index:
            lines = lines[::-1]
        xp.copyto(best, lines[0])
        for i in range(1, len(lines)):
            getattr(xp, better)(lines[i], best, out=wins)
            xp.copyto(best, lines[i], where=wins)
            xp.copyto(index, i, where=wins)
        if select_last_index:
            xp.subtract(len(lines) - 1, index, out=index)


_extreme("ArgMax", "argmax", "greater")
_extreme("ArgMin", "argmin", "less")


def _one_hot_work(indices: Spec, depth: Array, values: Spec) -> list[Spec]:
    return [Spec(indices.shape, INT64), Spec(indices.shape, values.dtype)]


@kernel("OneHot", host=(1,), work=_one_hot_work)
def one_hot(
    xp: Any, indices: Array, depth: Array, values: Array, *,
    out: Arrays, work: Arrays, axis: int = -1,
) -> None:  # fmt: skip
    """`values[1]` at the index, `values[0]` elsewhere; everywhere if the index is out of bounds."""
    y, (places, written) = out[0], work
    size = y.shape[axis]
    y[...] = values[0]
    if not y.size:
        return
    xp.copyto(places, indices, casting="unsafe")
    xp.copyto(written, values[1])
    xp.copyto(written, values[0], where=(places < -size) | (places >= size))
    xp.remainder(places, size, out=places)
    after = math.prod(y.shape[axis % y.ndim + 1 :])
    places = places.reshape(-1, after)
    places += xp.arange(len(places))[:, None] * size
    places *= after
    places += xp.arange(after)
    y.reshape(-1)[places.reshape(-1)] = written.reshape(-1)


def _sortable(xp: Any, x: Array) -> Array:
    """Numbers in the order of `x`: CuPy sorts all types but bfloat16."""
    return x if xp is np or x.dtype.name != "bfloat16" else x.astype(np.float32)


def _sorting(x: Spec, *, axis: int = -1) -> int:
    """Bytes to sort a block of rows: their copy, their order, and the sort's own buffer."""
    block = min(max(at_a_time(SORTED), x.shape[axis]), math.prod(x.shape))
    return block * (x.dtype.itemsize + 2 * INT64.itemsize) + x.bytes


@kernel("TopK", host=(1,), temporaries=_sorting)
def top_k(
    xp: Any, x: Array, k: Array, *, axis: int = -1, largest: int = 1, **attributes: Any
) -> tuple[Array, Array]:
    """The k largest (or smallest) elements and their indices, equal ones by lowest index."""
    count = int(k.item())
    size = x.shape[axis]
    lines = xp.ascontiguousarray(xp.moveaxis(x, axis, -1))
    rows = _sortable(xp, lines.reshape(-1, size))
    order = xp.empty((len(rows), count), INT64)
    lot = max(1, at_a_time(SORTED) // max(size, 1))
    for start in range(0, len(rows), lot):
        block = rows[start : start + lot]
        if largest:
            found = size - 1 - xp.argsort(block[:, ::-1], axis=1, kind="stable")[:, ::-1]
        else:
            found = xp.argsort(block, axis=1, kind="stable")
        order[start : start + len(block)] = found[:, :count]
    order = xp.moveaxis(order.reshape(*lines.shape[:-1], count), -1, axis)
    return xp.take_along_axis(x, order, axis), order


@kernel("NonZero")
def non_zero(xp: Any, x: Array) -> Array:
    """The indices of the elements that aren't zero, `[rank, how many]`."""
    found = xp.nonzero(x.reshape(-1) if x.ndim == 0 else x)
    return xp.stack(found).astype(INT64)


@kernel("Compress")
def compress(xp: Any, x: Array, condition: Array, *, axis: int | None = None) -> Array:
    """The slices of x along `axis` (its elements, if there is none) where the condition holds."""
    chosen = xp.nonzero(condition)[0]
    return xp.take(x.reshape(-1) if axis is None else x, chosen, axis=axis or 0)


@kernel("Unique", temporaries=lambda x: 2 * x.bytes + 6 * math.prod(x.shape) * INT64.itemsize)
def unique(xp: Any, x: Array, *, axis: int | None = None, **attributes: Any) -> tuple[Array, ...]:
    """`(values, first index of each, where each went, counts)`, sorted or by first appearance."""
    values, first, inverse, counts = xp.unique(
        _sortable(xp, x), return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    values = values.astype(x.dtype, copy=False)
    inverse = inverse.reshape(-1)
    if not attributes.get("sorted", 1):
        order = xp.argsort(first)
        rank = xp.argsort(order)
        values, first, counts = xp.take(values, order, axis or 0), first[order], counts[order]
        inverse = rank[inverse]
    return values, first.astype(INT64), inverse.astype(INT64), counts.astype(INT64)

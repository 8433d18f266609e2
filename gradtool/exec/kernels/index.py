"""Reading and writing by indices, and operators that return indices."""

from __future__ import annotations

import math

import numpy as np

from gradtool.exec.kernel import kernel
from gradtool.exec.kernels._indices import (
    accumulate,
    element_positions,
    normalised,
    position_work,
    row_positions,
    scatter,
)
from gradtool.program import Spec

INT64 = np.dtype(np.int64)
SORTED = 32768  # elements sorted at a time


# -------------------------------------------------------------------------- gather


def _gather_work(x, indices, *, out, axis=0):
    return [Spec(indices.shape, INT64)]


@kernel("Gather", work=_gather_work)
def gather(xp, x, indices, *, out, work, axis=0):
    """`y[…, i, …] = x[…, indices[i], …]`, with i over any number of axes."""
    rows = normalised(xp, indices, x.shape[axis], work[0])
    if out[0].size:
        xp.take(x, rows, axis=axis, out=out[0], mode="clip")


def _gather_grad_work(dy, indices, shape, *, out, axis=0):
    return [Spec(indices.shape, INT64)]


@kernel("ai.gradtool::GatherGrad", host=(2,), work=_gather_grad_work)
def gather_grad(xp, dy, indices, shape, *, out, work, axis=0):
    """Rows of `dy` added to the rows of zeros that they were read from, in order of reading."""
    dx = out[0]
    dx.fill(0)
    axis %= dx.ndim
    rows = normalised(xp, indices, dx.shape[axis], work[0]).reshape(-1)
    before, after = math.prod(dx.shape[:axis]), math.prod(dx.shape[axis + 1 :])
    if not dy.size:
        return
    dx = dx.reshape(before, -1, after)
    dy = dy.reshape(before, -1, after)
    if before > len(rows):
        for i, row in enumerate(rows.tolist()):
            dx[:, row] += dy[:, i]
    else:
        for plane, values in zip(dx, dy, strict=True):
            accumulate(xp, "add", plane, rows, values)


@kernel("GatherElements", work=lambda x, indices, *, out, axis=0: [position_work(indices)])
def gather_elements(xp, x, indices, *, out, work, axis=0):
    """`y[i, j, k] = x[i, indices[i, j, k], k]`, if axis is 1."""
    flat = x.reshape(-1)
    for tile, positions in element_positions(xp, indices, x.shape, axis % x.ndim, work[0]):
        xp.take(flat, positions, out=out[0][tile].reshape(-1), mode="clip")


def _gather_elements_grad_work(dy, indices, shape, *, out, axis=0):
    return [position_work(indices)]


@kernel("ai.gradtool::GatherElementsGrad", host=(2,), work=_gather_elements_grad_work)
def gather_elements_grad(xp, dy, indices, shape, *, out, work, axis=0):
    """Elements of `dy` added to the zeros that they were read from, in order of reading."""
    dx = out[0]
    dx.fill(0)
    flat = dx.reshape(-1)
    for tile, positions in element_positions(xp, indices, dx.shape, axis % dx.ndim, work[0]):
        accumulate(xp, "add", flat, positions, dy[tile].reshape(-1))


def _rows_work(x, indices, *others, out, **attributes):
    return [Spec((2 * math.prod(indices.shape[:-1]),), INT64)]


@kernel("GatherND", work=_rows_work)
def gather_nd(xp, x, indices, *, out, work, batch_dims=0):
    """`y[b, i] = x[b][indices[b, i]]`: the last axis of indices addresses several axes of x."""
    if out[0].size:
        rows, lines = row_positions(xp, indices, x.shape, work[0], batch_dims)
        xp.take(x.reshape(lines), rows, axis=0, out=out[0].reshape(-1, *lines[1:]), mode="clip")


@kernel("ai.gradtool::GatherNDGrad", host=(2,), work=_rows_work)
def gather_nd_grad(xp, dy, indices, shape, *, out, work, batch_dims=0):
    """Rows of `dy` added to the rows of zeros that they were read from, in order of reading."""
    dx = out[0]
    dx.fill(0)
    if dy.size:
        rows, lines = row_positions(xp, indices, dx.shape, work[0], batch_dims)
        accumulate(xp, "add", dx.reshape(lines), rows, dy.reshape(-1, *lines[1:]))


# ------------------------------------------------------------------------- scatter


def _start(xp, x, y):
    """`y` as a copy of `x`, unless they lie in the same place."""
    if not xp.may_share_memory(x, y):
        xp.copyto(y, x)


def _scatter_elements_work(x, indices, updates, *, out, axis=0, reduction="none"):
    return [position_work(indices)]


@kernel("ScatterElements", may_inplace=(0,), work=_scatter_elements_work)
def scatter_elements(xp, x, indices, updates, *, out, work, axis=0, reduction="none"):
    """`y = x`, then `y[i, indices[i, j, k], k] = updates[i, j, k]`, if axis is 1."""
    y = out[0]
    _start(xp, x, y)
    flat = y.reshape(-1)
    for tile, positions in element_positions(xp, indices, y.shape, axis % y.ndim, work[0]):
        scatter(xp, reduction, flat, positions, updates[tile].reshape(-1))


@kernel("ScatterND", may_inplace=(0,), work=_rows_work)
def scatter_nd(xp, x, indices, updates, *, out, work, reduction="none"):
    """`y = x`, then `y[indices[i]] = updates[i]`; indices address the leading axes of y."""
    y = out[0]
    _start(xp, x, y)
    if updates.size:
        rows, lines = row_positions(xp, indices, y.shape, work[0])
        scatter(xp, reduction, y.reshape(lines), rows, updates.reshape(-1, *lines[1:]))


# ------------------------------------------------------------------------- choices


def _extreme_work(x, *, out, axis=0, keepdims=1, select_last_index=0):
    axis %= len(x.shape)
    if axis == len(x.shape) - 1 and not select_last_index:
        return []
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    return [Spec(shape, x.dtype), Spec(shape, np.dtype(np.bool_))]


def _extreme(name, find, better):
    @kernel(name, work=_extreme_work)
    def run(xp, x, *, out, work, axis=0, keepdims=1, select_last_index=0):
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

    return run


_extreme("ArgMax", "argmax", "greater")
_extreme("ArgMin", "argmin", "less")


def _one_hot_work(indices, depth, values, *, out, axis=-1):
    return [Spec(indices.shape, INT64), Spec(indices.shape, values.dtype)]


@kernel("OneHot", host=(1,), work=_one_hot_work)
def one_hot(xp, indices, depth, values, *, out, work, axis=-1):
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


# ------------------------------------------------- sizes that depend on data, sorting


def _sorting(x, *others, out, axis=-1, **attributes):
    """Bytes to sort a block of rows: their copy, their order, and the sort's own buffer."""
    rows = max(SORTED, x.shape[axis] if x.shape else 1)
    return rows * (x.dtype.itemsize + 2 * INT64.itemsize) + x.bytes


@kernel("TopK", host=(1,), temporaries=_sorting)
def top_k(xp, x, k, *, axis=-1, largest=1, **attributes):
    """The k largest (or smallest) elements and their indices, equal ones by lowest index."""
    count = int(k.item())
    size = x.shape[axis]
    lines = xp.ascontiguousarray(xp.moveaxis(x, axis, -1))
    rows = lines.reshape(-1, size)
    order = xp.empty((len(rows), count), INT64)
    for start in range(0, len(rows), max(1, SORTED // max(size, 1))):
        block = rows[start : start + max(1, SORTED // max(size, 1))]
        if largest:
            found = size - 1 - xp.argsort(block[:, ::-1], axis=1, kind="stable")[:, ::-1]
        else:
            found = xp.argsort(block, axis=1, kind="stable")
        order[start : start + len(block)] = found[:, :count]
    order = xp.moveaxis(order.reshape(*lines.shape[:-1], count), -1, axis)
    return xp.take_along_axis(x, order, axis), order


@kernel("NonZero")
def non_zero(xp, x):
    """The indices of the elements that aren't zero, `[rank, how many]`."""
    found = xp.nonzero(x.reshape(-1) if x.ndim == 0 else x)
    return xp.stack(found).astype(INT64)


@kernel("Compress")
def compress(xp, x, condition, *, axis=None):
    """The slices of x along `axis` (its elements, if there is none) where the condition holds."""
    chosen = xp.nonzero(condition)[0]
    return xp.take(x.reshape(-1) if axis is None else x, chosen, axis=axis or 0)


@kernel("Unique", temporaries=lambda x, *, out, **attributes: 6 * x.bytes)
def unique(xp, x, *, axis=None, **attributes):
    """`(values, first index of each, where each went, counts)`, sorted or by first appearance."""
    values, first, inverse, counts = xp.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not attributes.get("sorted", 1):
        order = xp.argsort(first)
        rank = xp.argsort(order)
        values, first, counts = xp.take(values, order, axis or 0), first[order], counts[order]
        inverse = rank[inverse]
    return values, first.astype(INT64), inverse.astype(INT64), counts.astype(INT64)

"""Reading and accumulating by integer indices, in a fixed order, without temporaries of size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.ops.shared.bounds import within
from gradtool.ops.shared.sums import accumulator
from gradtool.ops.shared.types import Array, Index

LEAST, SHARE = 4096, 4096  # indices of a lot, at least; bytes of the arrays for each of its indices
# What becomes of `total` when a source `v` comes: the last one stays, or they are combined.
STEPS = {
    "assign": "v",
    "add": "total + v",
    "multiply": "total * v",
    "maximum": "(total != total || total > v) ? total : v",
    "minimum": "(total != total || total < v) ? total : v",
}
# One thread per source element; that of the first source of a target does the work of all.  Many
# are read before they are combined, since a thread waits for memory longer than for arithmetic.
WALK = """
const int ahead = 16;
long long column = i % width;
long long first = (i / width) % count;
long long plane = i / width / count;
long long row = sorted[first];
if (first == 0 || sorted[first - 1] != row) {
    long long at = (plane * height + row) * width + column;
    TOTAL total = static_cast<TOTAL>(target[at]);
    long long p = first;
    for (; p + ahead <= count && sorted[p + ahead - 1] == row; p += ahead) {
        TOTAL held[ahead];
        #pragma unroll
        for (int k = 0; k < ahead; ++k) {
            held[k] = static_cast<TOTAL>(values[(plane * count + order[p + k]) * width + column]);
        }
        #pragma unroll
        for (int k = 0; k < ahead; ++k) {
            TOTAL v = held[k];
            total = STEP;
        }
    }
    for (; p < count && sorted[p] == row; ++p) {
        TOTAL v = static_cast<TOTAL>(values[(plane * count + order[p]) * width + column]);
        total = STEP;
    }
    target[at] = static_cast<T>(total);
}
"""


def walk(xp: Any, step: Array, target: Array, rows: Array, values: Array) -> None:
    """`target[b, rows[i]] = step(target[b, rows[i]], values[b, i])` for i = 0, 1, …; rows repeat.

    `target` is `[R]`, `[R, D]` or `[B, R, D]`, `values` alike with as many rows as there are
    `rows`, which are in bounds.  Half precision is combined in float32 and rounded once.

    CuPy's `ufunc.at` combines with atomics, in whatever order its threads arrive.  Here the sources
    are sorted by their targets, stably, and one thread per target element walks its own sources in
    their order, which is numpy's: the same bits on every run.  The sort takes about 40 bytes per
    index from CuPy's pool, beside the arena: many are sorted a lot at a time, which takes a
    hundredth of what the arrays take.  A target with many sources takes as long as they do one
    after the other.
    """
    if not values.size:
        return
    target, values = _planes(target), _planes(values)
    narrow = step != "assign" and accumulator(target.dtype) != target.dtype
    run = _kernel(xp, step, "float" if narrow else "T")
    lot = len(rows) if narrow else max(LEAST, (target.nbytes + values.nbytes) // SHARE)
    for start in range(0, len(rows), lot):
        some, part = rows[start : start + lot], values[:, start : start + lot]
        order = xp.argsort(some, kind="stable")
        sizes = (target.shape[1], len(some), values.shape[2])
        run(part, xp.take(some, order), order, *sizes, target, size=part.size)


def _planes(array: Array) -> Array:
    return array[None, :, None] if array.ndim == 1 else array[None] if array.ndim == 2 else array


@cache
def _kernel(xp: Any, step: str, total: str) -> Any:
    return xp.ElementwiseKernel(
        "raw V values, raw I sorted, raw J order, int64 height, int64 count, int64 width",
        "raw T target",
        WALK.replace("TOTAL", total).replace("STEP", STEPS[step]),
        f"gradtool_{step}_in_order",
    )


TILE = 16384  # positions computed at a time
WIDE = 128  # rows of at least so many elements are added row by row, narrower ones by columns
UFUNCS = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


def tiles(shape: Sequence[int], limit: int | None = None) -> Iterator[Index]:
    """Indices that cut an array of `shape` into contiguous pieces of at most `limit` elements."""
    limit = limit or at_a_time(TILE)
    if math.prod(shape) <= limit:
        yield ()
        return
    length, *rest = shape
    rows = max(1, limit // max(1, math.prod(rest)))
    for start in range(0, length, rows):
        for tail in tiles(rest, limit) if math.prod(rest) > limit else [()]:
            yield (slice(start, min(start + rows, length)), *tail)


def position_work(indices: Spec) -> Spec:
    """Work for the positions of the first tile, the largest."""
    tile = next(tiles(indices.shape))
    size = math.prod(s.stop - s.start for s in tile) * math.prod(indices.shape[len(tile) :])
    return Spec((size,), np.dtype(np.int64))


def normalised(xp: Any, indices: Array, size: int, out: Array) -> Array:
    """`indices` counted from the front, in `out`. Raises IndexError where one is out of bounds."""
    within(xp, indices, -size, size, lambda: _outside(xp, indices, size))
    return xp.remainder(indices, size, out=out, casting="unsafe")


def _outside(xp: Any, indices: Array, size: int) -> IndexError:
    """IndexError of indices out of range; names their range if they are at hand."""
    if xp is np:
        return IndexError(f"an index of {indices.min()} … {indices.max()} into an axis of {size}")
    return IndexError(f"an index outside of an axis of {size}")


def element_positions(
    xp: Any, indices: Array, shape: Sequence[int], axis: int, work: Array
) -> Iterator[tuple[Index, Array]]:
    """`(tile, positions)`: where the elements of each tile of `indices` lie in a flat `shape`.

    Element `[i, j, k]` of indices names element `[i, indices[i, j, k], k]`, if `axis` is 1.
    """
    steps = [math.prod(shape[a + 1 :]) for a in range(len(shape))]
    for tile in tiles(indices.shape):
        piece = indices[tile]
        found = work[: piece.size].reshape(piece.shape)
        normalised(xp, piece, shape[axis], found)
        found *= steps[axis]
        for a, step in enumerate(steps):
            if a != axis:
                start, stop, _ = (tile[a] if a < len(tile) else slice(None)).indices(
                    indices.shape[a]
                )
                along = xp.arange(start, stop).reshape(
                    [-1 if b == a else 1 for b in range(piece.ndim)]
                )
                found += along * step
        yield tile, found.reshape(-1)


def row_positions(
    xp: Any, indices: Array, shape: Sequence[int], work: Array, batch_dims: int = 0
) -> tuple[Array, tuple[int, ...]]:
    """`(rows, lines)`: the rows that `indices` names in an array of `shape` reshaped to `lines`.

    `indices` is `[*batch, …, depth]` and addresses `depth` axes behind the batch; `lines` is
    `[rows, elements of a row]`, or only `[rows]` where a row is one element.
    """
    depth = indices.shape[-1]
    batches = math.prod(shape[:batch_dims])
    inner = math.prod(shape[batch_dims + depth :])
    flat = indices.reshape(-1, depth)
    rows, scratch = work[: len(flat)], work[len(flat) :]
    rows.reshape(batches, -1)[...] = xp.arange(batches)[:, None]
    for column, size in zip(flat.T, shape[batch_dims:], strict=False):
        rows *= size
        rows += normalised(xp, column, size, scratch)
    height = math.prod(shape[: batch_dims + depth])
    return rows, (height,) if inner == 1 else (height, inner)


def accumulate(xp: Any, ufunc: str, target: Array, rows: Array, values: Array) -> None:
    """`target[rows[i]] ufunc= values[i]` for i = 0, 1, …: rows repeat, the order is theirs.

    `target` is `[R, D]` or `[R]`.
    """
    if xp is not np:
        walk(xp, ufunc, target, rows, values)
        return
    at = getattr(xp, ufunc).at
    if target.ndim == 1:
        at(target, rows, values)
    elif ufunc == "add" and accumulator(target.dtype) != target.dtype:
        _add_wide(target, rows, values)
    elif target.shape[1] < WIDE:
        for column in range(target.shape[1]):
            at(target[:, column], rows, values[:, column])
    else:
        combine = getattr(xp, ufunc)
        for row, value in zip(rows.tolist(), values, strict=True):
            line = target[row]
            combine(line, value, out=line)


def accumulate_planes(xp: Any, ufunc: str, target: Array, rows: Array, values: Array) -> None:
    """`accumulate` with the same rows in every plane: `target[B, R, D]`, `values[B, n, D]`."""
    if xp is not np:
        walk(xp, ufunc, target, rows, values)
        return
    for plane, part in zip(target, values, strict=True):
        accumulate(xp, ufunc, plane, rows, part)


def _add_wide(target: Array, rows: Array, values: Array) -> None:
    """The same in float32, rounded once per row of the target."""
    order = np.argsort(rows, kind="stable")
    total = np.empty(target.shape[1], accumulator(target.dtype))
    starts = np.flatnonzero(np.diff(rows[order], prepend=-1)).tolist()
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        line = target[rows[order[start]]]
        total[:] = line
        for i in order[start:end].tolist():
            total += values[i]
        line[:] = total


def assign(xp: Any, target: Array, rows: Array, values: Array) -> None:
    """`target[rows[i]] = values[i]`; of equal rows the last one stays."""
    if xp is not np:
        walk(xp, "assign", target, rows, values)
    elif target.ndim == 1:
        target[rows] = values
    else:
        for row, value in zip(rows.tolist(), values, strict=True):
            target[row] = value


def scatter(xp: Any, reduction: str, target: Array, rows: Array, values: Array) -> None:
    """`assign` if `reduction` is none, else `accumulate`."""
    if reduction == "none":
        assign(xp, target, rows, values)
    else:
        accumulate(xp, UFUNCS[reduction], target, rows, values)

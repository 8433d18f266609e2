"""Accumulation by index on a CUDA device in a fixed order: the same bits on every run.

CuPy's `ufunc.at` combines with atomics, in whatever order its threads arrive.  Here the sources
are sorted by their targets, stably, and one thread per target element walks its own sources in
their order, which is numpy's.  The sort takes about 40 bytes per index from CuPy's pool, beside
the arena: many are sorted a lot at a time, which takes a hundredth of what the arrays take.  A
target with many sources takes as long as they do one after the other.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from gradtool.ops.shared.sums import accumulator
from gradtool.ops.shared.types import Array

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

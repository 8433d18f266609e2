"""Reductions without temporaries, in float32 for half-precision types."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.ops.shared.types import Array, Arrays, DType, Index

ROWS = 512  # longest run of values added one after the other
SHORT = 4096  # longest row that is summed as a product with ones, without pairwise adding
BLOCK = 32768  # elements: a few float32 buffers of them stay in the second-level cache


def accumulator(dtype: DType) -> DType:
    """The type in which sums of `dtype` are taken: float32 at least, for floats."""
    dtype = np.dtype(dtype)
    return np.dtype(np.float32) if dtype.itemsize < 4 and dtype.kind not in "iub" else dtype


def reduced_axes(rank: int, axes: Array | None, noop: int) -> tuple[int, ...]:
    """The axes that an ONNX reduction runs over: all if none are named, unless `noop`."""
    named = () if axes is None else tuple(sorted(int(a) % rank for a in np.ravel(axes)))
    return named if named or noop else tuple(range(rank))


def kept(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """`shape` with size one along `axes`."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def reduce_into(
    xp: Any, function: Any, x: Array, axes: Sequence[int], out: Array, **options: Any
) -> None:
    """`out = function(x, axes)`, `out` having the kept or the dropped axes."""
    out = out.reshape(kept(x.shape, axes))
    if axes:
        function(x, axis=axes, out=out, keepdims=True, **options)
    else:
        xp.copyto(out, x)


def _steps(shape: Sequence[int], axes: Sequence[int]) -> dict[int, int]:
    """Elements along each of `axes` to add in one run of at most `ROWS`, if it helps.

    Where the last axis is summed too, numpy adds pairwise.
    """
    room = at_a_time(ROWS)
    steps: dict[int, int] = {}
    for axis in reversed(axes):
        steps[axis] = min(shape[axis], max(room, 1))
        room //= max(shape[axis], 1)
    whole = all(steps[a] == shape[a] for a in axes) or len(shape) - 1 in axes
    return {} if whole else steps


def _rows_of(shape: Sequence[int], axes: Sequence[int], dtype: DType) -> int:
    """`n` if the sums are over the last axes, n elements in short rows: a product with ones."""
    trailing = bool(axes) and tuple(axes) == tuple(range(axes[0], len(shape)))
    n = math.prod(shape[axes[0] :]) if trailing else 0
    return n if np.dtype(dtype).kind == "f" and 1 < n <= SHORT and n < math.prod(shape) else 0


def sum_work(x: Spec, axes: Sequence[int], out: Spec) -> list[Spec]:
    """The work arrays of `sum_into`: a wide total, and partial sums of long columns, or ones."""
    wide = accumulator(out.dtype)
    if wide != out.dtype:
        work = [Spec(out.shape, wide)]
    elif n := _rows_of(x.shape, axes, out.dtype):
        return [Spec((n,), wide)]
    else:
        work = []
    if _steps(x.shape, axes):
        work.append(Spec(out.shape, wide))
    return work


def sum_into(
    xp: Any,
    x: Array,
    axes: Sequence[int],
    out: Array,
    work: Arrays,
    then: Callable[..., Any] | None = None,
) -> None:
    """`out = Σ x` over `axes`; `then(total)` may change the wide total before it is rounded.

    Long columns are added some rows at a time, each lot by itself: the rounding error is that of
    the number of lots, not of rows.
    """
    wide = accumulator(out.dtype)
    work = list(work)
    total = work.pop(0) if wide != out.dtype else out
    steps = _steps(x.shape, axes)
    if total is out and _rows_of(x.shape, axes, out.dtype) and x.flags.c_contiguous:
        _sum_rows(xp, x.reshape(-1, len(work[0])), out.reshape(-1), work[0])
    elif steps and x.size:
        _sum_columns(xp, x, axes, steps, total, work[0])
    else:
        reduce_into(xp, xp.sum, x, axes, total, dtype=total.dtype)
    if then is not None:
        then(total)
    if total is not out:
        xp.copyto(out, total, casting="unsafe")


def _sum_rows(xp: Any, x: Array, out: Array, ones: Array) -> None:
    ones.fill(1)
    xp.matmul(x, ones, out=out)


def _sum_columns(
    xp: Any, x: Array, axes: Sequence[int], steps: Mapping[int, int], total: Array, partial: Array
) -> None:
    starts = [range(0, x.shape[a], steps[a]) for a in axes]
    block = [slice(None)] * x.ndim
    for number, place in enumerate(itertools.product(*starts)):
        for axis, start in zip(axes, place, strict=True):
            block[axis] = slice(start, start + steps[axis])
        target = partial if number else total
        reduce_into(xp, xp.sum, x[tuple(block)], axes, target, dtype=target.dtype)
        if number:
            xp.add(total, partial, out=total)


def blocks(shape: Sequence[int], size: int | None = None) -> Iterator[Index]:
    """Tuples of slices, one per axis, that cut an array into blocks of about `size` elements."""
    whole = [slice(None)] * len(shape)
    if not shape:
        yield (...,)
        return
    axis, step = _cut(shape, size or at_a_time(BLOCK))
    for lead in np.ndindex(*shape[:axis]):
        whole[:axis] = [slice(i, i + 1) for i in lead]
        for start in range(0, shape[axis], step):
            whole[axis] = slice(start, start + step)
            yield tuple(whole)


def _cut(shape: Sequence[int], size: int) -> tuple[int, int]:
    """The axis that `blocks` cuts, and how many of its elements a block has at most."""
    axis, rest = 0, math.prod(shape[1:])
    while axis < len(shape) - 1 and rest > size:
        axis += 1
        rest //= max(shape[axis], 1)
    return axis, max(1, size // max(rest, 1))


def block_shape(shape: Sequence[int], size: int | None = None) -> tuple[int, ...]:
    """The shape of the largest of the `blocks` of an array."""
    if not shape:
        return ()
    axis, step = _cut(shape, size or at_a_time(BLOCK))
    return (*(min(n, 1) for n in shape[:axis]), min(shape[axis], step), *shape[axis + 1 :])


def largest_block(shape: Sequence[int]) -> int:
    """Number of elements of the largest of the `blocks` of an array."""
    return math.prod(block_shape(shape))


def mapped_work(x: Spec, axes: Sequence[int], out: Spec, wide: DType) -> list[Spec]:
    """The work arrays of `mapped_sum`: one block of terms, its sums, and a wide total."""
    block = block_shape(x.shape)
    sums = math.prod(kept(block, axes)) if axes and 0 not in block else 0
    total = [] if np.dtype(out.dtype) == wide else [Spec(out.shape, wide)]
    return [Spec((math.prod(block),), wide), Spec((sums,), wide), *total]


def mapped_sum(
    xp: Any, x: Array, axes: Sequence[int], terms: Callable[..., Any], out: Array, work: Arrays
) -> Array:
    """`Σ f(x)` over `axes` in a wide array of kept axes; `out` itself unless it is narrow.

    `terms(index, t)` writes f of the block of x at `index` to `t`.
    """
    first, second, *wide = work
    total = (wide[0] if wide else out).reshape(kept(x.shape, axes))
    total.fill(0)
    for index in blocks(x.shape) if x.size else ():
        shape = x[index].shape
        term = first[: math.prod(shape)].reshape(shape)
        terms(index, term)
        place = tuple(slice(None) if i in axes else s for i, s in enumerate(index))
        target = total[place]
        if axes:
            partial = second[: math.prod(target.shape)].reshape(target.shape)
            xp.sum(term, axis=axes, out=partial, keepdims=True, dtype=partial.dtype)
        else:
            partial = term
        xp.add(target, partial, out=target)
    return total


def folded(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """`[before, n, after]`: the sizes before, along and after `axis`."""
    axis %= len(shape)
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def lines(before: int, n: int, after: int, most: int | None = None) -> Iterator[Index]:
    """Index triples of an array `[before, n, after]` that take whole lines along its middle.

    At most `most` lines at once.
    """
    count = _count(n, most)
    if 0 in (before, n, after):
        return
    if after <= count:
        step = max(1, count // max(after, 1))
        for start in range(0, before, step):
            yield slice(start, start + step), slice(None), slice(None)
        return
    for i in range(before):
        for start in range(0, after, count):
            yield slice(i, i + 1), slice(None), slice(start, start + count)


def _count(n: int, most: int | None) -> int:
    count = max(1, at_a_time(BLOCK) // max(n, 1))
    return count if most is None else min(count, most)


def line_work(x: Spec, axis: int, blocks: int, stats: int, most: int | None = None) -> list[Spec]:
    """`blocks` arrays for some lines and `stats` arrays of a number per line, at least float32."""
    sizes = folded(x.shape, axis)
    n = sizes[1]
    first = next(lines(*sizes, most), None)
    count = 0 if first is None else _length(first[0], sizes[0]) * _length(first[2], sizes[2])
    wide = accumulator(x.dtype)
    return [Spec((count * n,), wide)] * blocks + [Spec((count,), wide)] * stats


def _length(part: slice, size: int) -> int:
    return len(range(size)[part])


def ones_work(x: Spec, axis: int) -> list[Spec]:
    """The ones for `line_sum`, of short lines without gaps."""
    _, n, after = folded(x.shape, axis)
    return [Spec((n if after == 1 and n <= SHORT else 0,), accumulator(x.dtype))]


def line_sum(xp: Any, x: Array, out: Array, ones: Array) -> None:
    """`out = Σ x` along the middle axis; `ones` are `ones_work`."""
    if len(ones):
        ones.fill(1)
        xp.matmul(x[:, :, 0], ones, out=out[:, 0, 0])
    else:
        xp.sum(x, axis=1, out=out, keepdims=True)


def fitted(array: Array, shape: Sequence[int]) -> Array:
    """The first elements of a flat work array, as `shape`."""
    return array[: math.prod(shape)].reshape(shape)

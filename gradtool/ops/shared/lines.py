"""Operators that work along one axis, some lines of it at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.ops.shared.sums import BLOCK, SHORT, accumulator
from gradtool.ops.shared.types import Array, Index


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

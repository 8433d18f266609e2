"""Sums over axes of arrays without gaps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gradtool.native.call import Array, Call, Signature

REDUCE_SUM = Signature("reduce_sum", "x y work", "before n after part slots", "factor")
ROW, ROWS = 4096, 128  # elements of a part of a row, rows of a part of columns
Sizes = tuple[int, int, int]  # before, n and after


def part(after: int) -> int:
    """The number of elements summed in floats."""
    return ROW if after == 1 else ROWS


def work(sizes: Sizes) -> int:
    """Bytes of workspace of a sum."""
    before, n, after = sizes
    cuts = -(-n // part(after))
    return 4 * before * cuts * after if cuts > 1 else 0


def passes(shape: Sequence[int], axes: Sequence[int]) -> Iterator[Sizes]:
    """The sums, one after the other, over axes of an array: neighbouring ones at once, last first.

    Each is of the result of the one before.
    """
    after, group = 1, 1
    for axis in reversed(range(len(shape))):
        if axis in axes:
            group *= shape[axis]
            continue
        if group != 1:
            yield math.prod(shape[: axis + 1]), group, after
            group = 1
        after *= shape[axis]
    if group != 1:
        yield 1, group, after


def reduce_sum(
    x: Array, y: Array, work: Array | None, sizes: Sizes, *, factor: float = 1.0
) -> Call:
    """`y[before, after] = factor · Σ x[before, n, after]`."""
    before, n, after = sizes
    return REDUCE_SUM.bind(
        x=x, y=y, work=work, before=before, n=n, after=after, part=part(after), factor=factor
    )

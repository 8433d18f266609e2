"""Extents of a Slice along an axis, by the bounds of the standard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def extent(size: int, start: int, end: int, step: int) -> tuple[int, int, int]:
    """First index, step and number of elements of `start:end:step` on an axis of `size`."""
    start, end = (bound + size if bound < 0 else bound for bound in (start, end))
    if step > 0:
        start, end = min(max(start, 0), size), min(max(end, 0), size)
    else:
        start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return start, step, max(0, -((start - end) // step))


def extents(
    shape: Sequence[int], starts: Any, ends: Any, axes: Any = None, steps: Any = None
) -> list[tuple[int, int, int]]:
    """`(first, step, count)` of each axis of a Slice; whole axes where it names none."""
    starts = np.ravel(starts).tolist()
    axes = range(len(starts)) if axes is None else np.ravel(axes).tolist()
    steps = [1] * len(starts) if steps is None else np.ravel(steps).tolist()
    whole = [(0, 1, size) for size in shape]
    for axis, start, end, step in zip(axes, starts, np.ravel(ends).tolist(), steps, strict=True):
        whole[axis] = extent(shape[axis], start, end, step)
    return whole

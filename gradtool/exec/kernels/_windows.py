"""Windows: arrays that are only another view of the bytes of one that exists."""

from __future__ import annotations

import itertools
import math

import numpy as np


def reshaped(shape, strides, new):
    """The strides of a window of shape `new` on an array of `shape` and `strides`, or None.

    Axes are matched from the left in the smallest groups of equal size; a group must lie evenly.

    Source: `_attempt_nocopy_reshape` of numpy.
    """
    if 0 in shape:
        return (0,) * len(new)
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    wanted = [axis for axis, n in enumerate(new) if n != 1]
    result = [0] * len(new)
    while old:
        group, axes = [old.pop(0)], [wanted.pop(0)]
        while (have := math.prod(n for n, _ in group)) != (want := math.prod(new[a] for a in axes)):
            if have < want:
                group.append(old.pop(0))
            else:
                axes.append(wanted.pop(0))
        if any(s != n * t for (_, s), (n, t) in itertools.pairwise(group)):
            return None
        stride = group[-1][1]
        for axis in reversed(axes):
            result[axis] = stride
            stride *= new[axis]
    return tuple(result)


def along(axis, index):
    """The index `[:, …, :, index]` with `index` at `axis`, which isn't negative."""
    return (slice(None),) * axis + (index,)


def extent(size, start, end, step):
    """First index, step and number of elements of `start:end:step` on an axis of `size`."""
    start, end = (bound + size if bound < 0 else bound for bound in (start, end))
    if step > 0:
        start, end = min(max(start, 0), size), min(max(end, 0), size)
    else:
        start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return start, step, max(0, -((start - end) // step))


def extents(shape, starts, ends, axes=None, steps=None):
    """`(first, step, count)` of each axis of a Slice; whole axes where it names none."""
    starts = np.ravel(starts).tolist()
    axes = range(len(starts)) if axes is None else np.ravel(axes).tolist()
    steps = [1] * len(starts) if steps is None else np.ravel(steps).tolist()
    whole = [(0, 1, size) for size in shape]
    for axis, start, end, step in zip(axes, starts, np.ravel(ends).tolist(), steps, strict=True):
        whole[axis] = extent(shape[axis], start, end, step)
    return whole


def slices(whole):
    """The index of an array that selects those extents."""
    return tuple(
        slice(first, first + step * count if first + step * count >= 0 else None, step)
        if count
        else slice(0, 0)
        for first, step, count in whole
    )

"""Windows: arrays as views of the bytes of another array."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from gradtool.ops.shared.types import Index


def reshaped(
    shape: Sequence[int], strides: Sequence[int], new: Sequence[int]
) -> tuple[int, ...] | None:
    """The strides of a window of shape `new` on an array of `shape` and `strides`, or None.

    Axes are matched from the left in the smallest groups of equal size; a group must lie evenly.

    Source: `_attempt_nocopy_reshape` of numpy.
    """
    if math.prod(shape) != math.prod(new):
        raise ValueError(f"{_sizes(shape)} has not as many elements as {_sizes(new)}")
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


def _sizes(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "a scalar"


def along(axis: int, index: slice) -> Index:
    """The index `[:, …, :, index]` with `index` at `axis`, which isn't negative."""
    return (slice(None),) * axis + (index,)


def slices(whole: Sequence[Sequence[int]]) -> Index:
    """The index of an array that selects `(first, step, count)` of each axis."""
    return tuple(
        slice(first, first + step * count if first + step * count >= 0 else None, step)
        if count
        else slice(0, 0)
        for first, step, count in whole
    )

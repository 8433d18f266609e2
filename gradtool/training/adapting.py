"""Arrays of another form than an input that can mean one thing only, and how they are turned to it.

The first axis has the examples on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.training.checks import Range, range_of
from gradtool.training.images import Scale
from gradtool.training.sampler import Indices

Array = np.ndarray[Any, Any]
Dims = Sequence[int | None]
_VOLUME = 4  # axes from which on channels may lie in front or behind


@dataclass(frozen=True)
class Adaptation:
    """How a batch of an array becomes one of an input, and the words that say so."""

    apply: Callable[[Array, Indices], Array]
    said: str


def adaptation(value: ir.Value, shape: Sequence[int], dtype: np.dtype[Any]) -> Adaptation | None:
    """The adapter of an array's shape to that of an input; None where it fits, or nothing does.

    Raises:
        ValueError: several do.
    """
    if value.shape is None or value.dtype is None:
        return None
    dims: Dims = [dim if isinstance(dim, int) else None for dim in value.shape]
    if len(shape) < 1 or not dims or _fits(shape, dims):
        return None
    found = [*_reshaped(shape, dims), *_turned(shape, dims), *_one_hot(value, shape, dims, dtype)]
    if len(found) > 1:
        raise ValueError(" or ".join(each.said for each in found))
    return found[0] if found else None


def _fits(shape: Sequence[int], dims: Dims) -> bool:
    """Whether a shape is allowed by dims, whatever the number of examples."""
    return len(shape) == len(dims) and all(
        dim in (None, size) for size, dim in zip(shape[1:], dims[1:], strict=True)
    )


def _reshaped(shape: Sequence[int], dims: Dims) -> Iterator[Adaptation]:
    """Axes of size 1 more or less, or the elements of an example in a row."""
    wanted: dict[tuple[int, ...], None] = {}
    for axis in range(1, len(dims)):
        grown = (*shape[:axis], 1, *shape[axis:])
        if dims[axis] == 1 and _fits(grown, dims):
            wanted[grown] = None
    for axis in range(1, len(shape)):
        less = (*shape[:axis], *shape[axis + 1 :])
        if shape[axis] == 1 and _fits(less, dims):
            wanted[less] = None
    inner = [dim for dim in dims[1:] if dim is not None]
    is_row = len(shape) == 2 and len(dims) > 2 and len(inner) == len(dims) - 1
    if is_row and prod(inner) == shape[1]:
        wanted[(shape[0], *inner)] = None
    for each in wanted:
        yield Adaptation(partial(_in_shape, each[1:]), f"reshaped to {_shown(each[1:])}")


def _in_shape(sizes: tuple[int, ...], array: Array, indices: Indices) -> Array:
    del indices
    return array.reshape(len(array), *sizes)


def _turned(shape: Sequence[int], dims: Dims) -> Iterator[Adaptation]:
    """Channels from behind to the front, or the other way round."""
    count = len(shape)
    if count < _VOLUME:
        return
    for source, target in ((count - 1, 1), (1, count - 1)):
        order = [axis for axis in range(count) if axis != source]
        order.insert(target, source)
        if _fits([shape[axis] for axis in order], dims):
            where = "in front" if target == 1 else "behind"
            shown = _shown([shape[axis] for axis in order][1:])
            turned = partial(_in_order, order)
            yield Adaptation(turned, f"its channels moved {where}: {shown}")


def _in_order(order: list[int], array: Array, indices: Indices) -> Array:
    del indices
    return array.transpose(order)


def _one_hot(
    value: ir.Value, shape: Sequence[int], dims: Dims, dtype: np.dtype[Any]
) -> Iterator[Adaptation]:
    """Rows of zeros with a one where the class is."""
    classes = classes_of(value)
    if classes is None or len(shape) != len(dims) + 1 or dtype.kind not in "biuf":
        return
    for axis in dict.fromkeys((1, len(shape) - 1)):
        rest = [*shape[:axis], *shape[axis + 1 :]]
        if shape[axis] == classes.high + 1 > 1 and _fits(rest, dims):
            said = f"taken as one-hot labels of {classes.high + 1} classes"
            yield Adaptation(partial(_places, axis, repr(value.name)), said)


def _places(axis: int, what: str, array: Array, indices: Indices) -> Array:
    wrong = ((array != 0) & (array != 1)).any(axis) | (array.sum(axis) != 1)
    if wrong.any():
        first = np.argwhere(wrong)[0][0]
        raise UsageError(
            f"{what} has no single 1 among zeros in example {int(indices[first])}: labels "
            "are numbers of classes, or one-hot"
        )
    found: Array = array.argmax(axis)
    return found


def classes_of(value: ir.Value) -> Range | None:
    """The classes that an input of labels takes; None where it has none."""
    found = range_of(value) if value.dtype is not None and value.dtype.is_integer() else None
    return found if found is not None and found.low == 0 else None


def is_one_based(value: ir.Value, labels: Array) -> bool:
    """Whether labels are from 1 to the number of classes, each beyond which would be refused."""
    classes = classes_of(value)
    if classes is None or labels.dtype.kind not in "iu":
        return False
    counted = labels if classes.ignored is None else labels[labels != classes.ignored]
    return bool(counted.size) and counted.min() == 1 and counted.max() == classes.high + 1


def from_one(value: ir.Value) -> Adaptation:
    """Labels from 1 on as labels from 0 on; the ignored one stays."""
    classes = classes_of(value)
    ignored = None if classes is None else classes.ignored

    def apply(array: Array, indices: Indices) -> Array:
        del indices
        lower = array.astype(np.int64) - 1
        return lower if ignored is None else np.where(array == ignored, array, lower)

    return Adaptation(apply, "its labels begin at 1: taken less 1")


def scaled(value: ir.Value, dtype: np.dtype[Any], scale: Scale) -> Adaptation | None:
    """How bytes of images become the floats that an input takes; None for anything else."""
    shape = value.shape
    if dtype != np.uint8 or shape is None or len(shape) != 4 or value.dtype is None:
        return None
    if not value.dtype.is_floating_point():
        return None
    axis = 3 if shape[3] in (1, 3, 4) and shape[1] not in (1, 3, 4) else 1
    channels = shape[axis]
    if isinstance(channels, int):
        scale.require(channels, repr(value.name))
    return Adaptation(
        lambda array, _: scale.applied(array, axis), "scaled from 0 to 255 to colors of 0 to 1"
    )


def _shown(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes)) or "a number"

"""Bad numbers of a batch: NaN, or a class or a place that does not exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.exec.inputs import is_raised, readers
from gradtool.operators.losses import IGNORED, WITH_LABELS
from gradtool.training.sampler import Indices

Array = np.ndarray[Any, Any]
Check = Callable[[Mapping[str, Array], Indices], None]


@dataclass(frozen=True)
class Range:
    """Whole numbers from `low` to `high`, and one that stands for nothing."""

    low: int
    high: int
    ignored: int | None = None


def checks_of(inputs: Mapping[str, ir.Value], source: str) -> dict[str, Check]:
    """The checks of each batch, by input; each raises UsageError and names the example."""
    made: dict[str, Check] = {}
    for name, value in inputs.items():
        if value.dtype is None:
            continue
        if value.dtype.is_floating_point():
            made[name] = partial(_no_nan, name, source)
        found = range_of(value) if np.dtype(value.dtype.numpy()).kind in "iu" else None
        if found is not None:
            made[name] = partial(_in_range, name, found, source)
    return made


def range_of(value: ir.Value) -> Range | None:
    """The integers that all readers of an input take; None if nobody says."""
    found = [_range(node, size) for node, size in readers([value])]
    if not found:
        return None
    ignored = {each.ignored for each in found}
    low, high = max(each.low for each in found), min(each.high for each in found)
    return Range(low, high, ignored.pop() if len(ignored) == 1 else None)


def _range(node: ir.Node, size: int) -> Range:
    if node.op_type in WITH_LABELS:
        if is_raised(node, 1):  # all below 0 are ignored; those that are meant to be are one
            return Range(0, size - 1, IGNORED)
        ignored = "ignore_index" in node.attributes
        return Range(0, size - 1, node.attributes.get_int("ignore_index") if ignored else None)
    return Range(-size, size - 1)


def _no_nan(name: str, source: str, batch: Mapping[str, Array], indices: Indices) -> None:
    array = batch[name]
    if has_nan(array):
        raise UsageError(f"{source}: {name!r} has a NaN{_where(np.isnan(array), indices)}")


def _in_range(
    name: str, takes: Range, source: str, batch: Mapping[str, Array], indices: Indices
) -> None:
    array = batch[name]
    if not array.size or (takes.low <= array.min() and array.max() <= takes.high):
        return
    wrong = (array < takes.low) | (array > takes.high)
    if takes.ignored is not None:
        wrong &= array != takes.ignored
    if wrong.any():
        beside = f", or {takes.ignored} for none" if takes.ignored is not None else ""
        raise UsageError(
            f"{source}: {name!r} has {array[wrong][0]}{_where(wrong, indices)}, the model takes "
            f"{takes.low} to {takes.high}{beside}"
        )


def converted(
    array: Array, dtype: np.dtype[Any], what: str, indices: Indices | None = None
) -> Array:
    """An array in another type of the same kind of number; `what` names it.

    Raises:
        UsageError: the type has not one of its whole numbers.
    """
    made = array.astype(dtype)
    if dtype.kind in "iu":
        wrong = (made.astype(array.dtype) != array) | ((made < 0) != (array < 0))
        if wrong.any():
            where = "" if indices is None else _where(wrong, indices)
            raise UsageError(f"{what} has {array[wrong][0]}{where}, the model takes {dtype}")
    return made


def has_nan(array: Array) -> bool:
    """Whether floats hold a NaN, which is found without an array of answers."""
    with np.errstate(invalid="ignore"):
        return bool(array.size) and bool(np.isnan(array.min()))


def _where(wrong: Array, indices: Indices) -> str:
    """The first wrong example, given one axis with as many places as examples."""
    axis = next((a for a, size in enumerate(wrong.shape) if size == len(indices)), None)
    if axis is None:
        return ""
    others = tuple(a for a in range(wrong.ndim) if a != axis)
    return f" in example {int(indices[int(np.argmax(wrong.any(axis=others)))])}"

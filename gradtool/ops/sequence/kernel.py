"""Sequences and optional values: Python lists of arrays, and None.

They lie outside the arena. A list and the arrays in it are never written again, so lists share
arrays; a tensor that enters a sequence is copied, since its place in the arena is used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from gradtool.ops.control.programs import Body, bound
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array, Arrays


def _kept(value: Array | Arrays) -> Array | list[Array]:
    return value.copy() if hasattr(value, "copy") and not isinstance(value, list) else value


def _position(position: Array | None, default: int) -> int:
    return default if position is None else int(np.asarray(position).reshape(-1)[0])


@kernel("SequenceConstruct", on_device=False)
def sequence_construct(xp: Any, *tensors: Array) -> list[Array]:
    return [_kept(tensor) for tensor in tensors]


@kernel("SequenceEmpty", on_device=False)
def sequence_empty(xp: Any, dtype: int = 1) -> list[Any]:
    return []


@kernel("SequenceLength")
def sequence_length(xp: Any, sequence: Arrays) -> Array:
    return xp.asarray(len(sequence), dtype=np.int64)


@kernel("SequenceAt", host=(1,), on_device=False)
def sequence_at(xp: Any, sequence: Arrays, position: Array) -> Array:
    return sequence[_position(position, 0)]


@kernel("SequenceInsert", host=(2,), on_device=False)
def sequence_insert(
    xp: Any, sequence: Arrays, tensor: Array, position: Array | None = None
) -> list[Array]:
    """A copy of the list with the tensor before `position`, at the end if there is none."""
    made = list(sequence)
    made.insert(_position(position, len(made)), _kept(tensor))
    return made


@kernel("SequenceErase", host=(1,), on_device=False)
def sequence_erase(xp: Any, sequence: Arrays, position: Array | None = None) -> list[Array]:
    """A copy of the list without one element, the last if there is no position."""
    made = list(sequence)
    del made[_position(position, -1)]
    return made


@kernel("SplitToSequence", host=(1,), on_device=False)
def split_to_sequence(
    xp: Any, x: Array, split: Array | None = None, *, axis: int = 0, keepdims: int = 1
) -> list[Array]:
    """Parts of the given sizes; a single number is the size of all but the last."""
    size = x.shape[axis]
    if split is None:
        parts = _cut(x, [1] * size, axis)
        return parts if keepdims else [part.reshape(_without(part.shape, axis)) for part in parts]
    if np.ndim(split):
        return _cut(x, [int(n) for n in split], axis)
    step = int(split)
    return _cut(x, [min(step, size - start) for start in range(0, size, step)], axis)


def _cut(x: Array, sizes: Sequence[int], axis: int) -> list[Array]:
    stops = np.cumsum([0, *sizes])
    whole = (slice(None),) * (axis % x.ndim)
    return [x[(*whole, slice(int(a), int(b)))].copy() for a, b in pairwise(stops)]


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    axis %= len(shape)
    return shape[:axis] + shape[axis + 1 :]


@kernel("ConcatFromSequence")
def concat_from_sequence(xp: Any, sequence: Arrays, *, axis: int, new_axis: int = 0) -> Array:
    return xp.stack(sequence, axis) if new_axis else xp.concatenate(sequence, axis)


@kernel("SequenceMap")
def sequence_map(xp: Any, sequence: Arrays, *others: Array, body: Body) -> tuple[list[Array], ...]:
    """One sequence per output of the body, which sees one element of each sequence at a time."""
    given = (sequence, *others)[: body.formal]
    inner = bound(xp, body, others[body.formal - 1 :])
    made: list[list[Array]] = [[] for _ in body.outputs]
    for turn in range(len(sequence)):
        for index, value in enumerate(given):
            inner.load(index, value[turn] if isinstance(value, list) else value)
        inner.run()
        for index, results in enumerate(made):
            results.append(inner.result(index))
    return tuple(made)


@kernel("Optional", on_device=False)
def optional(
    xp: Any,
    value: Array | Arrays | None = None,
    *,
    type: Any = None,  # noqa: A002 - the name of the attribute
) -> Array | list[Array]:
    return _kept(value)


@kernel("OptionalGetElement", on_device=False)
def optional_get_element(xp: Any, value: Array | Arrays) -> Array | list[Array]:
    return value


@kernel("OptionalHasElement")
def optional_has_element(xp: Any, value: Array | Arrays | None = None) -> Array:
    return xp.asarray(value is not None)

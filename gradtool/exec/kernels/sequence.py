"""Sequences and optional values: Python lists of arrays, and None.

They lie outside the arena. A list and the arrays in it are never written again, so lists share
arrays; a tensor that enters a sequence is copied, since its place in the arena is used again.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gradtool.exec.kernel import kernel
from gradtool.exec.kernels._subgraph import Body


def _kept(value):
    return value.copy() if hasattr(value, "copy") and not isinstance(value, list) else value


def _position(position, default):
    return default if position is None else int(np.asarray(position).reshape(-1)[0])


@kernel("SequenceConstruct")
def sequence_construct(xp, *tensors):
    return [_kept(tensor) for tensor in tensors]


@kernel("SequenceEmpty")
def sequence_empty(xp, dtype=1):
    return []


@kernel("SequenceLength")
def sequence_length(xp, sequence):
    return xp.asarray(len(sequence), dtype=np.int64)


@kernel("SequenceAt", host=(1,))
def sequence_at(xp, sequence, position):
    return sequence[_position(position, 0)]


@kernel("SequenceInsert", host=(2,))
def sequence_insert(xp, sequence, tensor, position=None):
    """A copy of the list with the tensor before `position`, at the end if there is none."""
    made = list(sequence)
    made.insert(_position(position, len(made)), _kept(tensor))
    return made


@kernel("SequenceErase", host=(1,))
def sequence_erase(xp, sequence, position=None):
    """A copy of the list without one element, the last if there is no position."""
    made = list(sequence)
    del made[_position(position, -1)]
    return made


@kernel("SplitToSequence", host=(1,))
def split_to_sequence(xp, x, split=None, *, axis=0, keepdims=1):
    """Parts of the given sizes; a single number is the size of all but the last."""
    size = x.shape[axis]
    if split is None:
        parts = _cut(x, [1] * size, axis)
        return parts if keepdims else [part.reshape(_without(part.shape, axis)) for part in parts]
    if np.ndim(split):
        return _cut(x, [int(n) for n in split], axis)
    step = int(split)
    return _cut(x, [min(step, size - start) for start in range(0, size, step)], axis)


def _cut(x, sizes, axis):
    stops = np.cumsum([0, *sizes])
    whole = (slice(None),) * (axis % x.ndim)
    return [x[(*whole, slice(int(a), int(b)))].copy() for a, b in pairwise(stops)]


def _without(shape, axis):
    axis %= len(shape)
    return shape[:axis] + shape[axis + 1 :]


@kernel("ConcatFromSequence")
def concat_from_sequence(xp, sequence, *, axis, new_axis=0):
    return xp.stack(sequence, axis) if new_axis else xp.concatenate(sequence, axis)


@kernel("SequenceMap")
def sequence_map(xp, sequence, *others, body):
    """One sequence per output of the body, which sees one element of each sequence at a time."""
    given = (sequence, *others)[: body.formal]
    inner = Body(xp, body, others[body.formal - 1 :])
    made = [[] for _ in body.outputs]
    for turn in range(len(sequence)):
        for index, value in enumerate(given):
            inner.load(index, value[turn] if isinstance(value, list) else value)
        inner.run()
        for index, results in enumerate(made):
            results.append(inner.result(index))
    return tuple(made)


@kernel("Optional")
def optional(xp, value=None, *, type=None):  # noqa: A002 - the name of the attribute
    return _kept(value)


@kernel("OptionalGetElement")
def optional_get_element(xp, value):
    return value


@kernel("OptionalHasElement")
def optional_has_element(xp, value=None):
    return xp.asarray(value is not None)

"""Flat indices of examples: the number of each, times a size, plus places below that size.

TorchScript writes `mask[example, place]` as a Gather from a flattened mask with such an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from gradtool.graph import constants
from gradtool.passes.batch_sizes import is_same
from gradtool.passes.batch_states import Batch, Fixed, Rows, Sized, State

_LAYOUTS = ("Cast", "Expand", "Identity", "Reshape", "Squeeze", "Unsqueeze")


def flat_index(batch: Batch, node: ir.Node, states: Sequence[State]) -> Rows | None:
    """The state of `number · size` and of `number · size + place`; None of anything else."""
    pairs = list(zip(states, node.inputs, strict=True))
    own = [(s, v) for s, v in pairs if isinstance(s, Rows) and s.own]
    rest = [v for s, v in pairs if isinstance(s, Fixed) and v is not None]
    if len(own) != 1 or len(rest) != 1 or len(pairs) != 2 or node.outputs[0].shape is None:
        return None
    (state, value), (other,) = own[0], rest
    if value is None or value.shape is None:
        return None
    state = replace(state, axis=state.axis + len(node.outputs[0].shape) - len(value.shape))
    if node.op_type == "Mul" and not state.stride:
        size = _number(batch, other)
        return None if size is None or size < 1 else replace(state, stride=size)
    if node.op_type == "Add" and state.stride and not state.placed:
        return replace(state, placed=True) if _below(batch, other) == state.stride else None
    return None


def picks_own(data: State, indices: State, axis: int) -> bool:
    """Whether flat indices pick from each example's own part of flattened ones."""
    return (
        isinstance(data, Rows)
        and isinstance(indices, Rows)
        and data.axis == axis == 0
        and indices.own
        and indices.placed
        and (data.outer, data.inner) == (1, indices.stride)
        and (indices.outer, indices.inner) == (1, 1)
    )


def _number(batch: Batch, value: ir.Value | None) -> int | None:
    """A whole number that is the same in every batch, if known."""
    state = batch.of(value)
    found = state.first if isinstance(state, Sized) and is_same(state) else constants.array(value)
    if found is None or found.size != 1 or value is None or value.dtype is None:
        return None
    return int(found.item()) if value.dtype.is_integer() else None


def _below(batch: Batch, value: ir.Value | None) -> int | None:
    """The end of a range from 0 in steps of 1, laid out otherwise perhaps."""
    node = None if value is None else value.producer()
    while node is not None and node.op_type in _LAYOUTS:
        source = node.inputs[0]
        node = None if source is None else source.producer()
    if node is None or node.op_type != "Range":
        return None
    start, end, step = (_number(batch, v) for v in node.inputs)
    return end if (start, step) == (0, 1) else None

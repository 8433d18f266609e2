"""Numbers that follow from the number of examples, evaluated for two of these."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.graph import constants, walk
from gradtool.passes.batch_states import (
    Batch,
    Fixed,
    MixesError,
    Sized,
    State,
    is_standard,
)  # fmt: skip

# Operands that are read for sizes, axes and bounds alone.
SHAPE_SLOTS: Mapping[str, tuple[int, ...]] = {
    "Reshape": (1,), "Expand": (1,), "Slice": (1, 2, 3, 4), "Tile": (1,), "Pad": (1, 3),
    "Resize": (2, 3), "ConstantOfShape": (0,), "Range": (0, 1, 2), "Squeeze": (1,),
    "Unsqueeze": (1,), "Split": (1,), "TopK": (1,), "OneHot": (1,), "DropoutMask": (0,),
    "CenterCropPad": (1,), "SliceGrad": (1, 2, 3, 4),
    **{f"Reduce{what}": (1,) for what in (
        "Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")},
}  # fmt: skip


_NUMBERS: Mapping[str, Callable[..., Any]] = {
    "Mul": np.multiply, "Add": np.add, "Sub": np.subtract, "Max": np.maximum, "Min": np.minimum,
    "Identity": np.asarray, "Neg": np.negative, "Sqrt": np.sqrt, "Reciprocal": np.reciprocal,
}  # fmt: skip


def sized(batch: Batch, node: ir.Node) -> State | None:
    """The state of a node's result from sizes; None for other operands."""
    if not is_standard(node):
        return None
    if node.op_type in ("Shape", "Size"):
        return _measured(batch, node)
    states = [batch.of(v) for v in node.inputs if v is not None]
    if node.op_type == "Range" or not any(isinstance(s, Sized) for s in states):
        return None
    if not all(isinstance(s, Sized | Fixed) for s in states) or walk.subgraphs(node):
        return None
    found = [_computed(batch, node, second=second) for second in (False, True)]
    if any(each is None for each in found):
        if all(is_same(s) for s in states if isinstance(s, Sized)):
            return None  # an operator of values that are the same in every batch
        return Sized(None, None) if _is_a_size(batch, node.outputs[0]) else None
    return Sized(*found)


def is_same(state: Sized) -> bool:
    """Whether numbers are known not to depend on the number of examples."""
    return state.first is not None and np.array_equal(state.first, state.second)  # type: ignore[arg-type]


def _is_a_size(batch: Batch, value: ir.Value) -> bool:
    """Whether a value is whole numbers or conditions, no more than a shape has."""
    dtype = value.dtype
    whole = dtype is not None and (dtype.is_integer() or dtype == ir.DataType.BOOL)
    return whole and value.shape is not None and len(value.shape) < 2 and not batch.varying(value)


def _measured(batch: Batch, node: ir.Node) -> State:
    value = node.inputs[0]
    try:
        both = [batch.dims(value, n) for n in batch.counts] if value is not None else []
    except MixesError:
        return Sized(None, None)
    if node.op_type == "Size":
        return Sized(*(np.array(math.prod(dims), object) for dims in both))
    start, end = (node.attributes.get_int(k, d) for k, d in (("start", 0), ("end", 2**31)))
    return Sized(*(np.array(dims[start:end], object) for dims in both))


def _computed(batch: Batch, node: ir.Node, *, second: bool) -> Any:
    """The numbers computed by a node, None if it is not followed."""
    read: list[Any] = []
    for value in node.inputs:
        state = batch.of(value)
        own = (state.second if second else state.first) if isinstance(state, Sized) else (
            constants.array(value)
        )  # fmt: skip
        if value is not None and own is None:
            return None
        read.append(own)
    try:
        return _number(node, read)
    except (ValueError, IndexError, TypeError, ZeroDivisionError):
        return None


def _number(node: ir.Node, read: list[Any]) -> Any:
    op, axis = node.op_type, node.attributes.get_int("axis", 0)
    if op in _NUMBERS:
        return _NUMBERS[op](*read)
    if op in ("Cast", "CastLike", "Reshape", "Squeeze", "Unsqueeze"):
        return np.asarray(read[0]) if op.startswith("Cast") else np.asarray(read[0]).reshape(
            [1] * (len(node.outputs[0].shape or ())) if np.size(read[0]) == 1 else [-1]
        )  # fmt: skip
    if op == "Div":
        whole = node.outputs[0].dtype is not None and node.outputs[0].dtype.is_integer()
        return np.asarray(read[0]) // read[1] if whole else np.true_divide(*map(_exact, read))
    if op == "Gather":
        return np.take(read[0], np.asarray(read[1], np.int64), axis)
    if op == "Slice" and len(read) < 5:
        return np.asarray(read[0])[int(read[1].item()) : int(read[2].item())]
    if op == "Concat":
        return np.concatenate([np.asarray(each) for each in read], axis)
    if op == "ReduceProd":
        return np.prod(read[0]).reshape([1] * len(node.outputs[0].shape or ()))
    return None


def _exact(number: Any) -> Any:
    return np.asarray(number, np.float64)

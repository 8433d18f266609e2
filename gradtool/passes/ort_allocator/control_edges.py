"""Control edges: values that wait for others, as parts of barriers (see `barrier`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.metadata import BARRIER, STAGE
from gradtool.graph.predicates import SIZES, is_float, may_be_tensor
from gradtool.graph.reads import reads
from gradtool.graph.typed import as_tensor

FLOAT, INT64 = ir.DataType.FLOAT.value, ir.DataType.INT64.value
LAYOUTS = ("Reshape", "Squeeze", "Unsqueeze")  # that onnxruntime merges
LARGE = 1 << 16  # bytes; waiting takes a dozen small nodes


@contextmanager
def before(op: Builder, first: ir.Node, awaited: Sequence[ir.Value]) -> Iterator[None]:
    """Emit before a clone, on behalf of a barrier on values."""
    start = len(op.emitted)
    with op.at(first, stage="backward", source="", prefix=f"{first.name}/barrier"):
        yield
    for node in op.emitted[start:]:
        node.metadata_props[BARRIER] = awaited[0].name or ""


def behind(op: Builder, node: ir.Node, value: ir.Value, awaited: Sequence[ir.Value]) -> ir.Value:
    """A value behind a barrier before a node, waiting for other values."""
    with before(op, node, awaited):
        return passing(op, value, zero_of(op, awaited))


def passing(op: Builder, value: ir.Value, zero: ir.Value) -> ir.Value:
    """A value, known when `zero` is."""
    if value.dtype in SIZES and (value.shape is None or len(value.shape) < 2):
        same: ir.Value = op.Add(value, op.cast(as_tensor(zero), value.dtype), like=value)
    else:
        same = same_shape(op, value, zero)
    return same


def same_shape(op: Builder, value: ir.Value, zero: ir.Value) -> ir.Value:
    """A value in its shape, known once `zero` is."""
    return op.Reshape(value, op.Add(op.Shape(value), zero), like=value)


def zero_of(op: Builder, awaited: Sequence[ir.Value]) -> ir.Value:
    """The scalar 0, computed from one element of each value, if it has any."""
    odd = op.IsNaN(op.Concat(*(_first(op, v) for v in awaited), axis=0))
    count = op.ReduceSum(op.Cast(odd, to=INT64), keepdims=0)
    return op.Mul(count, op.constant(np.int64(0)))


def _first(op: Builder, value: ir.Value) -> ir.Value:
    """The first element of a value, or nothing of an empty one.

    The end is computed, so that no runtime takes the size of the result to be 1 whatever happens.
    Where sizes are open nobody asks how many elements there are.
    """
    row: ir.Value | None = None
    if value.shape is None or not value.shape.is_static():
        row = ir.Value(type=value.type, shape=ir.Shape([op.context.new_symbolic_dim()]))
    end = op.Min(op.Size(value), [1], like=row and op.constant([1]))
    return op.Cast(op.Slice(op.Reshape(value, [-1], like=row), [0], end, like=row), to=FLOAT)


def depths_of(graph: ir.Graph) -> dict[ir.Value, int]:
    """The longest chain of operators from an input of the graph to each dependent value.

    Shapes do not: runtimes fold them where sizes are fixed, and values computed from them.
    """
    depths: dict[ir.Value, int] = {v: 0 for v in graph.inputs if not v.is_initializer()}
    for node in graph:
        before = [depths[v] for v in reads(node) if v in depths]
        if before and node.op_type not in ("Shape", "Size"):
            depths |= dict.fromkeys(node.outputs, max(before) + 1)
    return depths


def may_wait(node: ir.Node) -> bool:
    """Whether a barrier may be put before a node."""
    return BARRIER not in node.metadata_props and node.op_type not in LAYOUTS


def may_pass(value: ir.Value) -> bool:
    """Whether a value is worth a barrier, not merged with a layout before it."""
    return is_float(value) and may_be_tensor(value) and is_large(value) and not is_layout(value)


def is_layout(value: ir.Value) -> bool:
    """Whether a layout made a value."""
    node = value.producer()
    return node is not None and node.op_type in LAYOUTS


def is_backward(node: ir.Node) -> bool:
    """Whether a node computes gradients or uses them."""
    return node.metadata_props.get(STAGE) not in (None, "forward", "recompute")


def is_large(value: ir.Value) -> bool:
    """Whether a value is known to have enough bytes for waiting to be worth its nodes."""
    return bytes_of(value) >= LARGE


def bytes_of(value: ir.Value) -> int:
    """The bytes of a value, as far as they are known."""
    dims = list(value.shape or ())
    known = [d for d in dims if isinstance(d, int)]
    if value.dtype in (None, ir.DataType.STRING) or len(known) < len(dims):
        return 0
    return math.prod(known) * ir.DataType(value.dtype).bitwidth // 8

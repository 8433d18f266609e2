"""Master weights: parameters of 16 bits kept in float32 for updates.

An update is smaller than the steps of 16 bits, and so is the ε of an optimizer.  A parameter that
is updated, or whose gradient is summed up, is therefore an initializer of float32, and a Cast gives
forward the type that the file computes in.  Its gradient, and with that sums and state, are float32
as well; running statistics are too.  Tables are read in float32, a row at a time.

Source: Micikevicius et al. 2018, Mixed precision training (arXiv:1710.03740), section 3.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool import io
from gradtool.emit.builder import Builder
from gradtool.graph import walk
from gradtool.graph.metadata import STAGE
from gradtool.graph.predicates import HALVES
from gradtool.graph.reads import reads
from gradtool.graph.typed import as_tensor
from gradtool.io.zeros import Zeros

WIDE = ir.DataType.FLOAT


def keep_masters(op: Builder, parameters: Iterable[ir.Value]) -> list[str]:
    """Make initializers among the parameters, and running statistics, float32; return the warnings.

    This is in place; each keeps its name, and its readers read its former type.
    """
    chosen = [v for v in parameters if v.is_initializer() and v.dtype in HALVES]
    before = {kind.name.lower() for v in chosen if (kind := v.dtype) is not None}
    places = _first_readers(op.graph, chosen)
    for value in chosen:
        _stand_behind(op, value, places.get(value))
    for node in walk.nodes(op.graph):
        if node.op_type == "BatchNormalizationTraining":
            _widen_statistics(node)
    if not chosen:
        return []
    kinds = " and ".join(sorted(before))
    said = f"{len(chosen)} parameters of {kinds} have masters of float32, as have sums and state"
    return [f"{said}; what is trained is written as {kinds} again"]


def _first_readers(graph: ir.Graph, values: Iterable[ir.Value]) -> dict[ir.Value, ir.Node]:
    """By value its first reader of a graph, in a body or by itself."""
    wanted, found = set(values), dict[ir.Value, ir.Node]()
    for node in graph:
        for value in reads(node):
            if value in wanted:
                found.setdefault(value, node)
    return found


def _stand_behind(op: Builder, value: ir.Value, first: ir.Node | None) -> None:
    """Widen a parameter, and give its readers the former type."""
    dtype = value.dtype
    assert dtype is not None  # noqa: S101 - it is one of `HALVES`
    uses = list(value.uses())
    _widen(value)
    for use in [u for u in uses if u.idx == 0 and _looks_up(u.node, op.graph)]:
        uses.remove(use)
        _cast_rows(op, value, use.node, dtype)
    if not uses:
        return
    with op.at(first, stage="forward", source="", prefix=f"{value.name}/cast"):
        narrow = op.Cast(value, to=dtype)
    for use in uses:
        use.node.replace_input_with(use.idx, narrow)


def _looks_up(node: ir.Node, graph: ir.Graph) -> bool:
    """Whether a node of the graph itself reads rows of a table."""
    return node.graph is graph and not node.domain and node.op_type == "Gather"


def _cast_rows(op: Builder, table: ir.Value, node: ir.Node, dtype: ir.DataType) -> None:
    """Let another node look up rows of float32, and a node cast them: its result stays the same."""
    axis = node.attributes.get_int("axis", 0)
    with op.at(node, stage="forward", source="", prefix=f"{node.name}/rows"):
        rows = op.Gather(as_tensor(table), node.inputs[1], axis=axis)
    made = rows.producer()
    assert made is not None  # noqa: S101 - it was emitted
    made.metadata_props.update(node.metadata_props | {STAGE: "forward"})
    node.op_type = "Cast"
    node.resize_inputs(1)
    node.replace_input_with(0, rows)
    node.attributes.clear()
    node.attributes["to"] = ir.AttrInt64("to", int(dtype))


def _widen_statistics(node: ir.Node) -> None:
    """Keep the running statistics of a norm in float32; its arithmetic is, whatever it reads."""
    for old, new in zip(node.inputs[3:5], node.outputs[1:3], strict=True):
        if old is not None and old.is_initializer() and old.dtype in HALVES:
            _widen(old)
            new.type = old.type


def _widen(value: ir.Value) -> None:
    """Make an initializer float32; its numbers are read when they are asked for."""
    tensor = value.const_value
    value.type = ir.TensorType(WIDE)
    if isinstance(tensor, Zeros):
        value.const_value = Zeros(WIDE, tuple(tensor.shape.numpy()), tensor.name)
    elif tensor is not None:
        value.const_value = ir.LazyTensor(
            partial(_wide, tensor), dtype=WIDE, shape=ir.Shape(tensor.shape.numpy()),
            name=tensor.name,
        )  # fmt: skip


def _wide(tensor: ir.TensorProtocol) -> ir.Tensor[Any]:
    return ir.Tensor(io.array(tensor).astype(np.float32))

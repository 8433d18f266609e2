"""Sizes hidden from a runtime, so that values far apart share no place.

onnxruntime puts a value where a dead one of its size was, however much later, and holds that place
from the one to the other: everything planned in between comes on top.  It can be told not to in
Python alone (`enable_mem_reuse`).  Where it does not know sizes, it knows nothing of one size.  So
each input passes a barrier (see `barrier`), and so do shapes that no input tells.

A result written over a dying operand keeps its place: both are declared to have sizes of one name.
All other large values have names of their own, else inference would call them alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph import walk
from gradtool.graph.metadata import BARRIER, PLACE, notes
from gradtool.graph.predicates import FLOATS, INTEGERS, SIZES, has_sizes, is_tensor
from gradtool.graph.reads import reads
from gradtool.graph.training_info import TrainingInfo
from gradtool.passes.ort_allocator.control_edges import (
    before,
    is_large,
    passing,
    same_shape,
    zero_of,
)

TOLD = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0, "Resize": 3}  # sizes by an operand
# Operators whose result onnxruntime writes where the operand dies: no other elementwise ones, and
# two that take turns in two places would hold both.
IN_PLACE = frozenset({
    "Clip", "Elu", "HardSigmoid", "LeakyRelu", "LogSoftmax", "Relu", "Selu", "Sigmoid", "Softmax",
    "Softplus", "Softsign", "Tanh", "ThresholdedRelu",
})  # fmt: skip


def open_sizes(model: ir.Model) -> None:
    """Hide the sizes of a model with barriers, in place; loading it finds them again."""
    graph = model.graph
    state = TrainingInfo.of(model).state
    inputs = [value for value in graph.inputs if _is_able(value) and value.name not in state]
    if not inputs or any(map(_is_misread, walk.nodes(graph))):
        return
    op, first = Builder(model), graph[0]
    with before(op, first, inputs[:1]):
        zero = zero_of(op, inputs[:1])
    told = {zero}
    for value in inputs:
        told |= {value, _hide(op, first, value, zero) if value.shape else value}
    readers = {v: node for node in reversed(graph) for v in reads(node)}  # the first of each
    for value in graph.outputs:
        if value in readers and may_be_large(value):
            _hide(op, readers[value], value, zero)
    _hide_shapes(op, graph, zero, told)
    name_places(graph)


def _is_able(value: ir.Value) -> bool:
    """Whether an input is read, has no default, and is of a type known to barriers."""
    able = value.dtype in FLOATS or value.dtype in INTEGERS or value.dtype == ir.DataType.BOOL
    return able and bool(value.uses()) and not value.is_initializer()


def _is_misread(node: ir.Node) -> bool:
    """Whether ONNX infers 0 for an open size, by open operands of Attention.

    It does for heads that lie in one axis, and for the keys of the product that is returned.
    """
    if node.op_type != "Attention":
        return False
    shape = node.outputs[0].shape
    return any(v.name for v in node.outputs[3:]) or shape is None or len(shape) == 3


def _hide(op: Builder, reader: ir.Node, value: ir.Value, zero: ir.Value) -> ir.Value:
    """Put a barrier between a value, the first one given, and all its readers."""
    ours = set(op.emitted)
    uses = [use for use in value.uses() if use.node not in ours]
    with before(op, reader, [value]):
        same = same_shape(op, value, zero)
    for use in uses:
        use.node.replace_input_with(use.idx, same)
    return same


def _hide_shapes(
    op: Builder, nodes: Iterable[ir.Node], zero: ir.Value, told: set[ir.Value]
) -> None:
    """Let shapes independent of the inputs wait for them, those in bodies too."""
    hidden: dict[ir.Value, ir.Value] = {}
    for node in list(nodes):
        place = TOLD.get(node.op_type, len(node.inputs))
        shape = node.inputs[place] if place < len(node.inputs) else None
        if shape is not None and shape not in told and _may_tell(node, shape, told):
            if shape not in hidden:
                with before(op, node, [zero]):
                    hidden[shape] = passing(op, shape, zero)
            node.replace_input_with(place, hidden[shape])
            told.add(hidden[shape])
        for body in walk.subgraphs(node):
            _hide_shapes(op, body, zero, told.union(body.inputs))
        if any(v in told for v in reads(node)):
            told.update(node.outputs)


def _may_tell(node: ir.Node, shape: ir.Value, told: set[ir.Value]) -> bool:
    """Whether a node tells the sizes of a large value, not made of constants alone."""
    is_constant = node.op_type == "Reshape" and node.inputs[0] not in told
    is_able = shape.dtype in SIZES and BARRIER not in notes(node)
    return is_able and may_be_large(node.outputs[0]) and not is_constant


def name_places(graph: ir.Graph) -> None:
    """Declare the sizes of large values by name: one where a value may lie in another's place.

    Sizes of others are left open, and those of arguments and results of bodies.
    """
    numbers = itertools.count()
    for each, nodes in walk.by_graph(graph):
        if each is not graph:
            for value in (*each.inputs, *each.outputs):
                _open(value)
        _name(nodes, numbers)


def may_be_large(value: ir.Value) -> bool:
    """Whether a value is large, or of unknown size."""
    return value.shape is None or not value.shape.is_static() or is_large(value)


def _name(nodes: list[ir.Node], numbers: Iterator[int]) -> None:
    """Name the sizes of the results of one graph's nodes."""
    last = {value: node for node in nodes for value in reads(node)}
    known: dict[ir.Value, ir.Shape] = {}  # of named values
    for node in nodes:
        dying = node.inputs[0] if _writes(node) else None
        for value in node.outputs:
            shape = value.shape
            if shape is None or not is_tensor(value) or value.is_graph_output():
                continue
            if not may_be_large(value):
                _open(value)
                continue
            known[value] = shape
            kept = dying if dying in known and last[dying] is node else None
            same = kept is not None and has_sizes(known[kept], shape)
            value.shape = kept.shape if kept and same else _names(next(numbers), len(shape))


def _writes(node: ir.Node) -> bool:
    """Whether the first result of a node may lie over its first operand."""
    return node.op_type in IN_PLACE and node.domain in ("", "ai.onnx")


def _names(number: int, rank: int) -> ir.Shape:
    return ir.Shape([f"{PLACE}.{number}.{axis}" for axis in range(rank)])


def _open(value: ir.Value) -> None:
    """Leave all sizes of a value open, if it has any."""
    if value.shape is not None and is_tensor(value):
        value.shape = ir.Shape([None] * len(value.shape))

"""Sizes by name, for runtimes that put values of one size in one place (see `open_sizes`)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import onnx_ir as ir

from gradtool.graph import walk
from gradtool.graph.metadata import PLACE
from gradtool.graph.predicates import has_sizes, is_tensor
from gradtool.graph.reads import reads
from gradtool.passes.ort_allocator.control_edges import is_large

# Operators whose result onnxruntime writes where the operand dies: no other elementwise ones, and
# two that take turns in two places would hold both.
IN_PLACE = frozenset({
    "Clip", "Elu", "HardSigmoid", "LeakyRelu", "LogSoftmax", "Relu", "Selu", "Sigmoid", "Softmax",
    "Softplus", "Softsign", "Tanh", "ThresholdedRelu",
})  # fmt: skip


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

"""Inference rules of sequences, whose shape is the common one of all elements."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from gradtool.graph import walk
from gradtool.graph.predicates import is_tensor

# On the input of a loop body that starts as an empty sequence.
EMPTY = "gradtool.starts_empty"


def merge(ctx: Any, first: ir.Shape | None, second: ir.Shape | None) -> ir.Shape | None:
    """The common shape of two alternatives: a new symbol for each differing size."""
    if first is None or second is None or len(first) != len(second):
        return None
    return ir.Shape(
        a if a == b else ctx.new_symbolic_dim() for a, b in zip(first, second, strict=True)
    )


def merge_values(ctx: Any, first: ir.Value, second: ir.Value) -> ir.Shape | None:
    """The common shape of two tensors, or of the elements of two sequences."""
    if is_empty(first):
        return second.shape
    return first.shape if is_empty(second) else merge(ctx, first.shape, second.shape)


def is_empty(value: ir.Value) -> bool:
    """Whether a sequence has no element to tell a shape of."""
    node = value.producer()
    if node is not None and node.op_type == "Identity" and node.inputs[0] is not None:
        return is_empty(node.inputs[0])
    made_empty = node is not None and node.op_type == "SequenceEmpty"
    return value.shape is None and (made_empty or EMPTY in value.meta)


def mark_empty(model: ir.Model) -> None:
    """Mark the carried sequences of loops that are empty at first."""
    for node in walk.nodes(model.graph):
        if node.op_type == "Loop" and not node.domain:
            body = node.attributes["body"].as_graph()
            for start, formal in zip(node.inputs[2:], body.inputs[2:], strict=False):
                if start is not None and is_empty(start):
                    formal.meta[EMPTY] = True


def _identity(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's forgets the shapes of elements."""
    library(ctx, node)
    if not is_tensor(node.outputs[0]):
        _set(ctx, node, node.inputs[0].shape if node.inputs[0] is not None else None)


def _set(ctx: Any, node: ir.Node, shape: ir.Shape | None) -> None:
    if shape is not None:
        ctx.set_shape(node.outputs[0], shape)


def _construct(library: Any, ctx: Any, node: ir.Node) -> None:
    library(ctx, node)
    shapes = [v.shape for v in node.inputs if v is not None]
    _set(ctx, node, functools.reduce(functools.partial(merge, ctx), shapes))


def _insert(library: Any, ctx: Any, node: ir.Node) -> None:
    library(ctx, node)
    sequence, tensor = node.inputs[:2]
    if sequence is not None and tensor is not None:
        _set(ctx, node, merge_values(ctx, sequence, tensor))


def _first(library: Any, ctx: Any, node: ir.Node) -> None:
    library(ctx, node)
    _set(ctx, node, node.inputs[0].shape if node.inputs[0] is not None else None)


def _split(library: Any, ctx: Any, node: ir.Node) -> None:
    library(ctx, node)
    x = node.inputs[0]
    if x is None or x.shape is None or not len(x.shape):
        return
    dims = list(x.shape)
    axis = node.attributes.get_int("axis", 0) % len(dims)
    split = node.inputs[1] if len(node.inputs) > 1 else None
    known = None if split is None else ctx.get_symbolic_value(split)
    if split is None:
        dims[axis] = 1
        if not node.attributes.get_int("keepdims", 1):
            del dims[axis]
    else:
        dims[axis] = _part(dims[axis], known) or ctx.new_symbolic_dim()
    _set(ctx, node, ir.Shape(dims))


def _part(size: Any, sizes: Sequence[Any] | None) -> Any:
    """The common size of all parts, if there is one."""
    if not sizes:
        return None
    if len(sizes) > 1:
        return sizes[0] if all(s == sizes[0] for s in sizes) else None
    even = isinstance(size, int) and isinstance(sizes[0], int) and size % sizes[0] == 0
    return sizes[0] if even else None


def _concat(library: Any, ctx: Any, node: ir.Node) -> None:
    library(ctx, node)
    sequence = node.inputs[0]
    if sequence is None or sequence.shape is None:
        return
    dims = list(sequence.shape)
    new = node.attributes.get_int("new_axis", 0)
    axis = node.attributes["axis"].as_int() % (len(dims) + new)
    if new:
        dims.insert(axis, ctx.new_symbolic_dim())
    else:
        dims[axis] = ctx.new_symbolic_dim()
    _set(ctx, node, ir.Shape(dims))


def _map(library: Any, ctx: Any, node: ir.Node) -> None:
    library(ctx, node)
    body = node.attributes["body"].as_graph()
    for output, result in zip(node.outputs, body.outputs, strict=False):
        if result.shape is not None:
            ctx.set_shape(output, result.shape)


def _if(library: Any, ctx: Any, node: ir.Node) -> None:
    library(ctx, node)
    then, other = (node.attributes[n].as_graph() for n in ("then_branch", "else_branch"))
    for output, a, b in zip(node.outputs, then.outputs, other.outputs, strict=False):
        if output.type is not None and not is_tensor(output):
            shape = merge_values(ctx, a, b)
            if shape is not None:
                ctx.set_shape(output, shape)


RULES = {
    ("ConcatFromSequence", 11): _concat,
    ("Identity", 1): _identity,
    ("If", 1): _if,
    ("SequenceAt", 11): _first,
    ("SequenceConstruct", 11): _construct,
    ("SequenceErase", 11): _first,
    ("SequenceInsert", 11): _insert,
    ("SequenceMap", 17): _map,
    ("SplitToSequence", 11): _split,
}

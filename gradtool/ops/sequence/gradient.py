"""Gradients of sequences and optional values: the gradient of a sequence is a sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UnsupportedGradient
from gradtool.graph.constants import array
from gradtool.graph.reads import captured
from gradtool.graph.typed import Node, Tensor, as_tensor, given
from gradtool.ops.control.gradient_bodies import Body, is_random, own
from gradtool.ops.control.gradient_if import is_wanted, total
from gradtool.ops.gradients import Gradients, gradient, zero_gradient


def backward_map(
    op: Builder, node: Node, dys: Sequence[ir.Value | None]
) -> tuple[ir.Value | None, ...]:
    """The gradients by the inputs of the node and by its captured values."""
    if is_random(node):
        raise UnsupportedGradient(node, "what it drew at random can't be kept")
    graph = node.attributes["body"].as_graph()
    inner: dict[ir.Value, ir.Value] = dict(zip(node.inputs, graph.inputs, strict=True))
    outer = captured(node)
    wanted = [v for v in (*node.inputs, *outer) if is_wanted(op, v)]
    given = [(dy, y) for dy, y in zip(dys, graph.outputs, strict=False) if dy is not None]
    formal = [_formal(op, y) for _, y in given]

    def cotangents() -> dict[ir.Value, ir.Value]:
        return total(op, [y for _, y in given], formal)

    body = Body(
        op, graph, cotangents, [inner.get(v, v) for v in wanted],
        leaves=graph.inputs, redo=lambda _: True,
    )  # fmt: skip
    wanted = [v for v in wanted if inner.get(v, v) in body.gradients]
    again = [v for v in node.inputs if inner[v] in body.read]
    known = {inner[v]: _formal(op, inner[v]) for v in again}
    sequences = [dy for dy, _ in given]
    with op.body([*formal, *known.values()]) as made:
        found = body.move(known)
        for v in wanted:
            made.outputs.append(own(op, found[inner.get(v, v)], made.outputs))
    joined = op.SequenceMap(*sequences, *again, body=made, outputs=len(wanted))
    results = dict(zip(wanted, (joined,) if len(wanted) == 1 else joined, strict=True))
    for v in wanted:
        if isinstance(v.type, ir.TensorType):
            stacked = op.ConcatFromSequence(results[v], axis=0, new_axis=1)
            results[v] = op.sum(stacked, [0])
    return tuple(results.get(v) for v in (*node.inputs, *captured(node)))  # perhaps more now


def _formal(op: Builder, like: ir.Value) -> ir.Value:
    made = op.formal("element", (), as_tensor(like).dtype)
    made.shape = None if like.shape is None else like.shape.copy()
    return made


zero_gradient("OptionalHasElement", "SequenceEmpty", "SequenceLength")


def _from_start(op: Builder, position: Tensor, length: Callable[[], Tensor]) -> Tensor:
    """A position counted from the start, in a sequence of `length()` elements."""
    known = array(position)
    if known is not None and known.min() >= 0:
        return position
    return op.Where(
        op.Less(position, 0), op.Add(position, op.cast(length(), position.dtype)), position
    )


@gradient("SequenceConstruct")
def sequence_construct(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = [x₀, x₁, …]`:  dxᵢ = dy[i]."""
    return [op.SequenceAt(dy, np.asarray(i), like=x) for i, x in enumerate(node.inputs)]


@gradient("SequenceAt")
def sequence_at(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = s[i]`:  ds = [0, …, dy, …, 0]."""
    s, position = node.inputs
    position = _from_start(op, position, lambda: op.SequenceLength(s))
    return op.SequenceInsert(op.SequenceErase(op.zeros_like(s), position), dy, position), None


@gradient("SequenceInsert")
def sequence_insert(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y` is s with x inserted before i, at the end if there is no i:  ds is the rest of dy."""
    (s, x), position = node.inputs[:2], given(node, 2)
    if position is None:
        position = op.constant(-1)
    else:
        position = _from_start(op, position, lambda: op.SequenceLength(s))
    return op.SequenceErase(dy, position), op.SequenceAt(dy, position, like=x), None


@gradient("SequenceErase")
def sequence_erase(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y` is s without s[i], the last if there is no i:  ds has a zero there."""
    s, position = node.inputs[0], given(node, 1)
    if position is None:
        zero = op.zeros_like(op.SequenceAt(s, np.asarray(-1)))
        return op.SequenceInsert(dy, zero)
    position = _from_start(op, position, lambda: op.SequenceLength(s))
    zero = op.zeros_like(op.SequenceAt(s, position))
    return op.SequenceInsert(dy, zero, position), None


@gradient("SplitToSequence")
def split_to_sequence(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y` are parts of x along an axis:  dx is dy joined."""
    x = node.inputs[0]
    axis = node.attributes.get_int("axis", 0)
    whole = given(node, 1) is not None or node.attributes.get_int("keepdims", 1) == 1
    new_axis = 0 if whole else 1
    return op.ConcatFromSequence(dy, axis=axis, new_axis=new_axis, like=x), None


@gradient("ConcatFromSequence")
def concat_from_sequence(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y` is s joined along an axis:  ds are the parts of dy of the sizes of the elements."""
    s = node.inputs[0]
    axis = node.attributes["axis"].as_int()
    if node.attributes.get_int("new_axis", 0):
        return op.SplitToSequence(dy, axis=axis, keepdims=0)
    axis %= len(s.shape)
    sizes = op.each(lambda x: op.Shape(x, start=axis, end=axis + 1), s)
    return op.SplitToSequence(dy, op.ConcatFromSequence(sizes, axis=0), axis=axis)


@gradient("SequenceMap")
def sequence_map(op: Builder, node: Node, *dys: Tensor | None) -> Gradients:
    """`y[i] = body(s[i], x, v…)`:  ds[i] = body'(dy[i]), and dx, dv are summed over i."""
    return backward_map(op, node, dys)


@gradient("Optional")
def optional(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y` holds x:  dx = dy, as an optional value has the gradient of its content."""
    return dy


@gradient("OptionalGetElement")
def optional_get_element(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y` is the content of x."""
    return dy

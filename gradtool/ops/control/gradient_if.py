"""The gradient of If: an If on the same condition, whose branches differentiate forward's.

A branch of the gradient computes again what it needs of its forward branch, so that the memory of
a step does not depend on which branch is taken. Random draws are not made again but handed over.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.reads import captured
from gradtool.graph.typed import as_tensor
from gradtool.ops.control.gradient_bodies import Body, is_known_outside, is_random, own, show

NAMES = ("then_branch", "else_branch")


def backward_if(
    op: Builder, node: ir.Node, dys: Sequence[ir.Value | None]
) -> tuple[ir.Value | None, ...]:
    """The gradients by the condition (None) and by each captured value."""
    values = captured(node)
    wanted = [v for v in values if is_wanted(op, v)]
    if not wanted:
        return (None,) * (1 + len(values))
    graphs = [node.attributes[name].as_graph() for name in NAMES]
    branches = {}
    for name, graph, other in zip(NAMES, graphs, reversed(graphs), strict=True):

        def cotangents(graph: ir.Graph = graph) -> dict[ir.Value, ir.Value]:
            return total(
                op,
                graph.outputs,
                [_as(op, dy, y) for dy, y in zip(dys, graph.outputs, strict=False)],
            )

        body = Body(op, graph, cotangents, wanted, redo=lambda n: not is_random(n))
        known = {v: _handed(op, node, graph, other, v) for v in body.handed}
        with op.body([]) as inner:
            found = body.move(known)
            for v in wanted:
                dv = op.Identity(found[v]) if v in found else op.zeros_like(v)
                inner.outputs.append(dv)
        branches[name] = inner
    made = op.If(node.inputs[0], **branches, outputs=len(wanted))
    results = dict(zip(wanted, (made,) if len(wanted) == 1 else made, strict=True))
    return (None, *(results.get(v) for v in captured(node)))  # there may be more now


def is_wanted(op: Builder, value: ir.Value | None) -> bool:
    """Whether a gradient can flow into a value, and is asked for."""
    if value is None or value.dtype is None:
        return False
    return value in op.active and value.dtype.is_floating_point()


def total(
    op: Builder, values: Sequence[ir.Value], dys: Sequence[ir.Value | None]
) -> dict[ir.Value, ir.Value]:
    """The gradient by each value, summed where a value comes several times."""
    found: dict[ir.Value, ir.Value] = {}
    for value, dy in zip(values, dys, strict=False):
        if dy is not None:
            found[value] = op.plus(found[value], dy) if value in found else dy
    return found


def _as(op: Builder, dy: ir.Value | None, y: ir.Value) -> ir.Value | None:
    """`dy` within a branch, where the shape of the output is known better than outside."""
    if dy is None or y.dtype is None or not y.dtype.is_floating_point():
        return None
    if list(dy.shape or ()) == list(y.shape or ()):
        return dy
    made = op.Identity(dy)
    made.shape = None if y.shape is None else y.shape.copy()
    return made


def _handed(
    op: Builder, node: ir.Node, graph: ir.Graph, other: ir.Graph, value: ir.Value
) -> ir.Value:
    """A value of one branch as an output of the node; the other branch gives zeros."""
    shape = ir.Shape([]) if value.shape is None else value.shape.copy()
    dims = list(shape) if is_known_outside(op, list(shape)) else [0] * len(shape)
    made = show(op, node, graph, value, shape)
    with op.at(None, stage="forward", source="", prefix=node.name or ""):
        size = op.sizes(dims)
        with op.inside(other):
            zero = np.zeros(1, as_tensor(value).dtype.numpy())
            other.outputs.append(own(op, op.ConstantOfShape(size, value=zero), other.outputs))
    return made

"""The gradient of SequenceMap: a SequenceMap over the gradients and the elements."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UnsupportedGradient
from gradtool.gradients._branches import is_wanted, total
from gradtool.gradients.bodies import Body, is_random, own
from gradtool.graph.known import Node, as_tensor
from gradtool.graph.reads import captured


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

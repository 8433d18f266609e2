"""The gradient of SequenceMap: a SequenceMap over the gradients and the elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from gradtool.errors import UnsupportedGradient
from gradtool.gradients._branches import is_wanted, total
from gradtool.passes.backward import captured
from gradtool.passes.bodies import Body, is_random, own


def backward_map(
    op: Any, node: ir.Node, dys: Sequence[ir.Value | None]
) -> tuple[ir.Value | None, ...]:
    """The gradients by the inputs of the node and by its captured values."""
    if is_random(node):
        raise UnsupportedGradient(node, "what it drew at random can't be kept")
    graph = node.attributes["body"].as_graph()
    inner = dict(zip(node.inputs, graph.inputs, strict=True))
    outer = captured(node)
    wanted = [v for v in (*node.inputs, *outer) if v is not None and is_wanted(op, v)]
    given = [(dy, y) for dy, y in zip(dys, graph.outputs, strict=False) if dy is not None]
    formal = [_formal(op, y) for _, y in given]

    def heads() -> dict[ir.Value, ir.Value]:
        return total(op, [y for _, y in given], formal)

    body = Body(
        op, graph, heads, [inner.get(v, v) for v in wanted],
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
    results = op.SequenceMap(*sequences, *again, body=made, outputs=len(wanted))
    results = dict(zip(wanted, (results,) if len(wanted) == 1 else results, strict=True))
    for v in wanted:
        if isinstance(v.type, ir.TensorType):
            joined = op.ConcatFromSequence(results[v], axis=0, new_axis=1)
            results[v] = op.sum(joined, [0])
    return tuple(results.get(v) for v in (*node.inputs, *captured(node)))  # perhaps more now


def _formal(op: Any, like: ir.Value) -> ir.Value:
    made: ir.Value = op.formal("element", (), like.dtype)
    made.shape = None if like.shape is None else like.shape.copy()
    return made

"""Ifs whose condition is known replaced by the branch that is taken.

    y = If (true) <then: { y' = f (x) }, else: …>    →  y' = f (x)

Exporters that keep the arguments of a function as constants leave such, nested in each other.
"""

from __future__ import annotations

import onnx_ir as ir

from gradtool.builder import Builder
from gradtool.graph import walk
from gradtool.passes.prune import detach


def settle_branches(op: Builder) -> int:
    """Rewrite the builder's model in place; return how many were replaced.

    Initializers of branches must have been lifted.
    """
    count = 0
    pending = [*walk.graphs(op.model.graph)][::-1]  # outer ones first
    while pending:
        graph = pending.pop()
        for node in list(graph):
            taken = _taken(node)
            if taken is not None and not taken.initializers:
                _replace(op, graph, node, taken)
                count += 1
                pending.append(graph)  # what was in the branch is here now
    return count


def _taken(node: ir.Node) -> ir.Graph | None:
    """The branch that every run takes, if there is one."""
    if node.op_type != "If" or node.domain or node.inputs[0] is None or node.graph is None:
        return None
    condition = node.inputs[0]
    known = None if condition.is_graph_input() else ir.convenience.get_const_tensor(condition)
    if known is None or known.size != 1:
        return None
    name = "then_branch" if known.numpy().reshape(-1)[0] else "else_branch"
    return node.attributes[name].as_graph()


def _replace(op: Builder, graph: ir.Graph, node: ir.Node, taken: ir.Graph) -> None:
    results = list(taken.outputs)
    taken.outputs.clear()
    inner = list(taken)
    taken.remove(inner)
    graph.insert_before(node, inner)
    for value, result in zip(node.outputs, results, strict=True):
        if value.is_graph_output():
            result = _named(op, node, value, result)  # noqa: PLW2901
        value.replace_all_uses_with(result, replace_graph_outputs=True)
    detach(node)
    graph.remove(node, safe=True)


def _named(op: Builder, place: ir.Node, value: ir.Value, result: ir.Value) -> ir.Value:
    """A copy of a result that has the name of an output."""
    name, value.name = value.name, None
    copy = ir.Node("", "Identity", [result], name=op.names.fresh(f"{place.name}/Identity"))
    made = copy.outputs[0]
    made.name, made.type, made.shape = name, result.type, result.shape
    assert place.graph is not None  # noqa: S101 - it was just found in one
    place.graph.insert_before(place, copy)
    return made

"""Dead outputs of composite bodies: results that a call has no use for.

Runtimes that put off such nodes to the end hold their operands until then.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import onnx_ir as ir
from onnx import defs

from gradtool.graph import walk
from gradtool.graph.metadata import CALL, CALLEE, notes
from gradtool.graph.predicates import is_used
from gradtool.graph.prune import detach
from gradtool.graph.reads import reads


def drop_unread(model: ir.Model) -> int:
    """Drop the nodes of inlined bodies that nobody reads, in place. Returns how many.

    The note of a body's call goes over to the first of its nodes left.  Optional
    outputs at the end that nobody reads go too: runtimes compute and hold them.
    """
    count = 0
    by_graph = list(walk.by_graph(model.graph))
    for graph, nodes in reversed(by_graph):  # inner ones read what outer ones make
        bodies = [node for node in nodes if CALL in notes(node)]
        unread = _detached(bodies)
        callees: dict[str, str] = {}
        for node in bodies:
            call = node.metadata_props[CALL]
            if node in unread:
                if CALLEE in node.metadata_props:
                    callees[call] = node.metadata_props[CALLEE]
                continue
            if call in callees:
                node.metadata_props[CALLEE] = callees.pop(call)
            _shorten(node)
        graph.remove(unread)
        count += len(unread)
    return count


def _detached(bodies: Sequence[ir.Node]) -> dict[ir.Node, None]:
    """The nodes of bodies that nobody reads; they read nothing any more."""
    unread: dict[ir.Node, None] = {}
    for node in reversed(bodies):
        if not any(is_used(v) for v in node.outputs):
            detach(node)
            unread[node] = None
    return unread


def _shorten(node: ir.Node) -> None:
    """Drop the optional outputs at the end of a node that nobody reads."""
    count = len(node.outputs)
    while is_optional(node, count - 1) and not is_used(node.outputs[count - 1]):
        count -= 1
    if count < len(node.outputs):
        node.resize_outputs(count)


def is_optional(node: ir.Node, place: int) -> bool:
    """Whether an operator may leave out an output."""
    return place > 0 and place in _optional_outputs(node.op_type, node.domain)


@functools.cache
def _optional_outputs(name: str, domain: str) -> frozenset[int]:
    try:
        outputs = defs.get_schema(name, "" if domain == "ai.onnx" else domain).outputs
    except defs.SchemaError:
        return frozenset()
    optional = defs.OpSchema.FormalParameterOption.Optional
    return frozenset(i for i, output in enumerate(outputs) if output.option == optional)


def needed(nodes: Sequence[ir.Node], results: Iterable[ir.Value]) -> list[ir.Node]:
    """Nodes, in their order, on which results depend."""
    read = set(results)
    found = []
    for node in reversed(nodes):
        if any(v in read for v in node.outputs):
            read.update(reads(node))
            found.append(node)
    return found[::-1]

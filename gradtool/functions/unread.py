"""What bodies of composites compute although nobody reads it: results that a call has no use for.

Runtimes that put off such nodes to the end hold until then what these read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import onnx_ir as ir
from onnx import defs

from gradtool.graph import walk
from gradtool.graph.metadata import CALL, CALLEE
from gradtool.graph.predicates import is_used
from gradtool.graph.prune import detach
from gradtool.graph.reads import reads


def drop_unread(model: ir.Model) -> int:
    """Drop the nodes of inlined bodies that nobody reads, in place. Returns how many.

    What says which call a body is of goes over to the first node that is left of it.  Optional
    outputs at the end that nobody reads go too: runtimes compute and hold them.
    """
    count = 0
    for graph in reversed(list(walk.graphs(model.graph))):  # inner ones read what outer ones make
        unread = _detached(graph)
        callees: dict[str, str] = {}
        for node in graph:
            call = node.metadata_props.get(CALL, "")
            if node in unread:
                if CALLEE in node.metadata_props:
                    callees[call] = node.metadata_props[CALLEE]
            elif call in callees:
                node.metadata_props[CALLEE] = callees.pop(call)
            if node not in unread and CALL in node.metadata_props:
                _shorten(node)
        graph.remove(unread)
        count += len(unread)
    return count


def _detached(graph: ir.Graph) -> dict[ir.Node, None]:
    """The nodes of bodies that nobody reads; they read nothing any more."""
    unread: dict[ir.Node, None] = {}
    for node in reversed(graph):
        if CALL in node.metadata_props and not any(is_used(v) for v in node.outputs):
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
    """Those of some nodes, in their order, that results depend on."""
    read = set(results)
    found = []
    for node in reversed(nodes):
        if any(v in read for v in node.outputs):
            read.update(reads(node))
            found.append(node)
    return found[::-1]

"""Dead code elimination: removal of nodes and values that no output depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from gradtool.graph import walk
from gradtool.graph.predicates import is_used

SPARE = "gradtool.spare"  # of an initializer: nothing in its file reads it, but a loss may name it


def mark_spare(model: ir.Model) -> None:
    """Mark the unread initializers of a file."""
    for value in model.graph.initializers.values():
        if not is_used(value):
            value.meta[SPARE] = True


def prune(model: ir.Model, *, spare: bool = True) -> int:
    """Drop unread nodes, and unread initializers other than inputs. Returns how many nodes.

    Without `spare`, initializers that `mark_spare` has marked stay.
    """
    graph = model.graph
    dead: dict[ir.Node, None] = {}
    for node in reversed(graph):
        if not any(is_used(v) for v in node.outputs):
            detach(node)
            dead[node] = None
    graph.remove(dead)
    for name, value in list(graph.initializers.items()):
        if is_used(value) or value.is_graph_input():
            continue
        if spare or SPARE not in value.meta:
            del graph.initializers[name]
    return len(dead)


def drop(nodes: Iterable[ir.Node]) -> None:
    """Remove nodes read by one another alone."""
    by_graph: dict[ir.Graph, list[ir.Node]] = {}
    for node in nodes:
        assert isinstance(node.graph, ir.Graph)  # noqa: S101 - it is in a graph
        by_graph.setdefault(node.graph, []).append(node)
        detach(node)
    for graph, members in by_graph.items():
        graph.remove(members, safe=True)


def succeed(new: ir.Value, old: ir.Value) -> None:
    """Let a value have the name, the readers and, as an output, the place of another."""
    name, old.name = old.name, None
    new.name = name or new.name
    old.replace_all_uses_with(new, replace_graph_outputs=True)


def drop_unread(graph: ir.Graph) -> None:
    """Remove the nodes of a graph that nothing reads, last ones first."""
    dead = []
    for node in reversed(graph):
        if not any(is_used(v) for v in node.outputs):
            detach(node)
            dead.append(node)
    graph.remove(dead)


def detach(node: ir.Node) -> None:
    """Let a node and its subgraphs read nothing any more."""
    for reader in (node, *inner_nodes(node)):
        for slot in range(len(reader.inputs)):
            reader.replace_input_with(slot, None)


def inner_nodes(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes of the subgraphs of a node."""
    for graph in walk.subgraphs(node):
        yield from walk.nodes(graph)

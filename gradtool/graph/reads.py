"""Reads of nodes, captures of their subgraphs included, and dependence by them."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from gradtool.graph import walk


def reads(node: ir.Node) -> list[ir.Value]:
    """The values read by a node, captures of its subgraphs included."""
    found = [v for v in node.inputs if v is not None]
    if node.attributes.data and walk.subgraphs(node):
        found += captured(node)
    return found


def captured(node: ir.Node) -> tuple[ir.Value, ...]:
    """The outer values read by the subgraphs of a node."""
    graphs = walk.subgraphs(node)
    if not graphs:
        return ()
    return tuple(dict.fromkeys(v for graph in graphs for v in free(graph)))


def free(graph: ir.Graph) -> tuple[ir.Value, ...]:
    """The free values of a subgraph: read or returned there and defined outside of it."""
    graphs = list(walk.graphs(graph))
    nodes = list(walk.nodes(graph))
    own = {v for g in graphs for v in (*g.inputs, *g.initializers.values())}
    own |= {v for node in nodes for v in node.outputs}
    read = [v for node in nodes for v in node.inputs if v is not None]
    read += [v for g in graphs for v in g.outputs]
    return tuple(dict.fromkeys(v for v in read if v not in own))


def dependent(
    graph: ir.Graph, sources: Iterable[ir.Value], cut: frozenset[ir.Value] = frozenset()
) -> set[ir.Value]:
    """The values that depend on any of `sources` other than through `cut`, sources included."""
    found = set(sources) - cut
    for node in graph:
        if not found.isdisjoint(reads(node)):
            found.update(v for v in node.outputs if v not in cut)
    return found


def needed(
    graph: ir.Graph, targets: Iterable[ir.Value], cut: frozenset[ir.Value] = frozenset()
) -> set[ir.Value]:
    """The values that any of `targets` depends on other than through `cut`, targets included."""
    found = set(targets) - cut
    for node in reversed(graph):
        if not found.isdisjoint(node.outputs):
            found.update(v for v in reads(node) if v not in cut)
    return found

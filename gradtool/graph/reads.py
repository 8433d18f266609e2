"""What nodes read, those captured by their subgraphs included, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from gradtool.graph import walk


def reads(node: ir.Node) -> list[ir.Value]:
    """The values a node reads, those captured by its subgraphs included."""
    found = [v for v in node.inputs if v is not None]
    if node.attributes.data and walk.subgraphs(node):
        found += captured(node)
    return found


def captured(node: ir.Node) -> tuple[ir.Value, ...]:
    """The values that the subgraphs of a node read and that are defined outside of them."""
    graphs = walk.subgraphs(node)
    if not graphs:
        return ()
    return tuple(dict.fromkeys(v for graph in graphs for v in free(graph)))


def free(graph: ir.Graph) -> tuple[ir.Value, ...]:
    """The values that a subgraph reads or returns and that are defined outside of it."""
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
    """The values that depend on any of `sources` other than through `cut`, those included."""
    found = set(sources) - cut
    for node in graph:
        if not found.isdisjoint(reads(node)):
            found.update(v for v in node.outputs if v not in cut)
    return found


def needed(
    graph: ir.Graph, targets: Iterable[ir.Value], cut: frozenset[ir.Value] = frozenset()
) -> set[ir.Value]:
    """The values that any of `targets` depends on other than through `cut`, those included."""
    found = set(targets) - cut
    for node in reversed(graph):
        if not found.isdisjoint(node.outputs):
            found.update(v for v in reads(node) if v not in cut)
    return found

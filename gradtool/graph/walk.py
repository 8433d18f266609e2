"""The nodes, graphs and values of a model, subgraphs included.

onnx-ir's own iterators do the same in several times as long: they look into every attribute of
every node through a view of a view.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir

_GRAPH, _GRAPHS = ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS


def subgraphs(node: ir.Node) -> list[ir.Graph]:
    """The bodies of a node, in the order of its attributes."""
    attributes = node.attributes.data
    if not attributes or not _hold_graphs(attributes):
        return []
    found: list[ir.Graph] = []
    for attribute in attributes.values():
        kind = attribute.type
        if kind == _GRAPH:
            found.append(attribute.as_graph())
        elif kind == _GRAPHS:
            found += attribute.as_graphs()
    return found


def _hold_graphs(attributes: Mapping[str, ir.Attr]) -> bool:
    """Whether any attribute is a graph, as few are."""
    for attribute in attributes.values():  # a loop: `any` takes twice as long
        kind = attribute.type
        if kind is _GRAPH or kind is _GRAPHS:
            return True
    return False


def domains(graph: ir.Graph) -> set[str]:
    """The domains that a graph imports, or has operators of."""
    return {*graph.opset_imports, *(node.domain for node in nodes(graph))}


def nodes(graph: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    """Every node, the nodes of a body right after the node it belongs to."""
    for node in graph:
        yield node
        if node.attributes.data:
            for inner in subgraphs(node):
                yield from nodes(inner)


def graphs(top: ir.Graph) -> Iterator[ir.Graph]:
    """`top` and every graph nested in it, outer ones first."""
    yield top
    for node in top:
        if node.attributes.data:
            for inner in subgraphs(node):
                yield from graphs(inner)


def by_graph(top: ir.Graph) -> Iterator[tuple[ir.Graph, list[ir.Node]]]:
    """`top` and every graph nested in it, outer ones first, each with its own nodes."""
    nodes = list(top)
    yield top, nodes
    for node in nodes:
        if node.attributes.data:
            for inner in subgraphs(node):
                yield from by_graph(inner)

"""Removal of what no output depends on."""

from __future__ import annotations

import onnx_ir as ir


def prune(model: ir.Model) -> int:
    """Drop unread nodes, and unread initializers that are no inputs; return how many nodes."""
    graph = model.graph
    results = set(graph.outputs)
    dropped = 0
    for node in reversed(graph):
        if not any(v in results or v.uses() for v in node.outputs):
            graph.remove(node, safe=True)
            dropped += 1
    for name, value in list(graph.initializers.items()):
        if not value.uses() and value not in results and not value.is_graph_input():
            del graph.initializers[name]
    return dropped

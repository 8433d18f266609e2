"""Initializers of bodies become those of the main graph, readable by every body.

Differentiated values move from one body to another, and a weight of a loop is trained as well.
"""

from __future__ import annotations

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph import walk


def lift_initializers(op: Builder) -> None:
    """Move them, in place. One that is an input of its body as well stays there."""
    main = op.model.graph
    found = [
        (graph, value)
        for graph in walk.graphs(main)
        for value in graph.initializers.values()
        if graph is not main and value not in graph.inputs
    ]
    for graph, value in found:
        _return_copies(op, graph, value)
        del graph.initializers[value.name or ""]
        if value.name in main.initializers:
            value.name = op.names.fresh(value.name or "constant")
        main.register_initializer(value)


def _return_copies(op: Builder, graph: ir.Graph, value: ir.Value) -> None:
    """Return a copy of an outer value from a body, which returns computed values only."""
    for slot, output in enumerate(graph.outputs):
        if output is value:
            with op.at(None, stage="forward", source="", prefix=graph.name or ""), op.inside(graph):
                graph.outputs[slot] = op.Identity(value)

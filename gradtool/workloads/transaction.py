"""Composites opened and nodes moved in a model, all of which can be taken back.

To try on a copy would take as much memory again as the model does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from gradtool.graph.prune import drop
from gradtool.passes.masks import open_choices
from gradtool.workloads.hoist import move, unmark


class Draft:
    """A model in which `opened` are replaced by their bodies, until it is restored or kept.

    `bodies` names, by node of a body, the composite that it was.
    """

    def __init__(self, model: ir.Model, opened: Sequence[ir.Node]) -> None:
        graph = model.graph
        self._graph, self._model = graph, model
        self._order = list(graph)
        self._initializers = set(graph.initializers)
        self._versions = model.ir_version, dict(graph.opset_imports)
        self._opened = [(node, node.inputs, node.device_configurations) for node in opened]
        self._moved: tuple[ir.Node, ...] = ()
        self.bodies, self._results = open_choices(model, opened)

    def move(self, nodes: Iterable[ir.Node]) -> None:
        """Compute nodes in forward; once."""
        self._moved = tuple(nodes)
        move(self._model, self._moved)

    def restore(self) -> None:
        """Take everything back: nodes, their order, names, and what constants bodies brought."""
        graph = self._graph
        for old, new in self._results.items():
            name, new.name = new.name, None
            old.name = name
            new.replace_all_uses_with(old, replace_graph_outputs=True)
        for node in self._moved:
            unmark(node)
        drop(self.bodies)
        graph.remove(node for node in self._moved if node not in self.bodies)
        for node, inputs, devices in self._opened:
            for slot, value in enumerate(inputs):
                node.replace_input_with(slot, value)
            node.device_configurations = devices
        following: ir.Node | None = None
        for node in reversed(self._order):
            if node.graph is None:
                if following is None:
                    graph.append(node)
                else:
                    graph.insert_before(following, node)
            following = node
        for name in [name for name in graph.initializers if name not in self._initializers]:
            del graph.initializers[name]
        self._model.ir_version, opsets = self._versions
        graph.opset_imports.clear()
        graph.opset_imports.update(opsets)

"""The module of a node: by its exporter, else by names."""

from __future__ import annotations

import onnx_ir as ir

from gradtool.graph.metadata import SOURCE
from gradtool.passes.provenance import place

FAR = 4  # nodes between a parameter and the reader of values derived from it alone


class Modules:
    """The module of each node; backward nodes belong to their forward node's.

    The exporter's word comes first, then the node's name without its last part, then the name of a
    parameter that it reads, without its last part.
    """

    def __init__(self, graph: ir.Graph) -> None:
        own = [(n.name or "", n) for n in graph if not n.metadata_props.get(SOURCE)]
        self._found = {name: _module(node, name) for name, node in own if name}

    def of(self, node: ir.Node) -> str:
        """The module of a node; empty if nothing tells."""
        name = node.metadata_props.get(SOURCE) or node.name or ""
        found = self._found.get(name)
        return _module(node, name) if found is None else found


def _module(node: ir.Node, name: str) -> str:
    return place(node) or _without_end(name) or _by_parameter(node)


def _without_end(name: str) -> str:
    """A path without its last part, the operator or the tensor; parts joined by dots.

    TorchScript says `/layer1/layer1.0/conv/Conv`, where a part repeats the one before it.
    """
    parts = [part for part in name.split("/") if part.strip(".")]
    if len(parts) < 2:
        return ".".join([part for part in name.split(".") if part.strip("/")][:-1])
    path: list[str] = []
    for part in parts[:-1]:
        if path and part.startswith(f"{path[-1]}."):
            path.pop()
        path.append(part)
    return ".".join(path)


def _by_parameter(node: ir.Node) -> str:
    names = (_parameter(value) for value in node.inputs if value is not None)
    return next((found for name in names if (found := _without_end(name))), "")


def _parameter(value: ir.Value) -> str:
    """The name of the parameter that a value is, or is made of alone; empty if of none."""
    for _ in range(FAR):
        if value.is_initializer():
            return value.name or ""
        maker = value.producer()
        if maker is None or len(maker.inputs) != 1 or maker.inputs[0] is None:
            return ""
        value = maker.inputs[0]
    return ""

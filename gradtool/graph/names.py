"""Fresh names: deterministic, readable and unique within a model."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

import onnx_ir as ir

from gradtool.graph import walk
from gradtool.graph.families import full_name

_NONE: AbstractSet[str] = frozenset()
_SYMBOL = re.compile(r"[^\W\d][\w.]*")


class Names:
    """A source of names new to all values, nodes and initializers of a model.

    `symbols` are the names in the shapes of its values.
    """

    def __init__(self, taken: set[str] | None = None, symbols: AbstractSet[str] = _NONE) -> None:
        self._taken = set() if taken is None else taken
        self._counts: dict[str, int] = {}
        self.symbols = symbols

    @classmethod
    def of(cls, *models: ir.Model) -> Names:
        """All names in use in models, their subgraphs included."""
        taken: set[str | None] = set()
        shapes: dict[int, ir.Shape | None] = {}  # by identity: values that are alike share theirs
        for model in models:
            for graph, nodes in walk.by_graph(model.graph):
                taken.update(graph.initializers)
                for value in graph.inputs:
                    taken.add(value.name)
                    shapes[id(value.shape)] = value.shape
                for node in nodes:
                    taken.add(node.name)
                    for value in node.outputs:
                        taken.add(value.name)
                        shapes[id(value.shape)] = value.shape
        dims = {dim for shape in shapes.values() for dim in shape or () if not isinstance(dim, int)}
        symbols = {name for dim in dims for name in _SYMBOL.findall(dim.value or "")}
        return cls({name for name in taken if name}, symbols)

    def fresh(self, hint: str) -> str:
        """`hint` itself if it is free, else the first free of `hint_1`, `hint_2` and so on."""
        name = hint
        while name in self._taken:
            count = self._counts[hint] = self._counts.get(hint, 0) + 1
            name = f"{hint}_{count}"
        self._taken.add(name)
        return name


def label(node: ir.Node) -> str:
    """The name of a node in messages: its operator and its name, or its output."""
    op = full_name(node.domain, node.op_type)
    if node.name:
        return f"{op} node {node.name!r}"
    output = next((value.name for value in node.outputs if value.name), "")
    return f"{op} node that writes {output!r}"

"""Fresh names: deterministic, readable and unique within a model."""

from __future__ import annotations

import re

import onnx_ir as ir

from gradtool.graph import walk
from gradtool.graph.families import full_name

_SYMBOL = re.compile(r"[^\W\d][\w.]*")


class Names:
    """Hands out names that no value, node or initializer of a model has."""

    def __init__(self, taken: set[str] | None = None) -> None:
        self._taken = set() if taken is None else taken
        self._counts: dict[str, int] = {}

    @classmethod
    def of(cls, *models: ir.Model) -> Names:
        """All names in use in models, their subgraphs included."""
        taken: set[str] = set()
        for graph in (each for model in models for each in walk.graphs(model.graph)):
            taken.update(v.name for v in graph.inputs if v.name)
            taken.update(graph.initializers)
            for node in graph:
                taken.update(v.name for v in node.outputs if v.name)
                if node.name:
                    taken.add(node.name)
        return cls(taken)

    def fresh(self, hint: str) -> str:
        """`hint` itself if it is free, else the first free of `hint_1`, `hint_2` and so on."""
        name = hint
        while name in self._taken:
            count = self._counts[hint] = self._counts.get(hint, 0) + 1
            name = f"{hint}_{count}"
        self._taken.add(name)
        return name


def label(node: ir.Node) -> str:
    """How messages name a node: its operator and its name, or what it writes."""
    op = full_name(node.domain, node.op_type)
    if node.name:
        return f"{op} node {node.name!r}"
    output = next((value.name for value in node.outputs if value.name), "")
    return f"{op} node that writes {output!r}"


def symbols_of(model: ir.Model) -> set[str]:
    """The names of all symbols in the shapes of a model's values."""
    texts: dict[str, None] = {}
    for graph in walk.graphs(model.graph):
        for value in graph.inputs:
            texts |= _open_sizes(value)
        for node in graph:
            for value in node.outputs:
                texts |= _open_sizes(value)
    return {name for text in texts for name in _SYMBOL.findall(text)}


def _open_sizes(value: ir.Value) -> dict[str, None]:
    shape = value.shape
    if shape is None:
        return {}
    return {d.value: None for d in shape.dims if not isinstance(d, int) and d.value is not None}

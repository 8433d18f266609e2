"""Fresh names: deterministic, readable and unique within a model."""

from __future__ import annotations

import re

import onnx_ir as ir

_SYMBOL = re.compile(r"[^\W\d][\w.]*")


class Names:
    """Hands out names that no value, node or initializer of a model has."""

    def __init__(self, taken: set[str] | None = None) -> None:
        self._taken = set() if taken is None else taken
        self._counts: dict[str, int] = {}

    @classmethod
    def of(cls, model: ir.Model) -> Names:
        """All names in use in `model`, its subgraphs included."""
        taken: set[str] = set()
        for graph in model.graphs():
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


def symbols_of(model: ir.Model) -> set[str]:
    """The names of all symbols in the shapes of a model's values."""
    found: set[str] = set()
    for graph in model.graphs():
        values = (*graph.inputs, *(v for node in graph for v in node.outputs))
        for value in values:
            for dim in value.shape or ():
                if isinstance(dim, ir.SymbolicDim) and dim.value is not None:
                    found.update(_SYMBOL.findall(dim.value))
    return found

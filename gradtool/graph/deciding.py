"""Origins of an unknown shape: sizes and values of inputs, with their flags."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

import onnx_ir as ir

from gradtool.graph import walk
from gradtool.graph.metadata import ELEMENTS, notes
from gradtool.graph.names import label
from gradtool.graph.predicates import NO_DATA, may_be_float
from gradtool.text.words import some

SHAPE, CONTENT = "shape", "content"
_INFERRED = re.compile(r"_(v_)?(d\d+|[sz][0-9a-f]{16})")
_NAME = re.compile(r"[^\W\d][\w.]*")
_FUNCTIONS = {"Max", "Min", "Mod", "floor", "ceiling", "max", "min"}
# Operators whose first input's numbers decide how large the result is.
_CONTENT = frozenset({"NonZero", "Compress", "Unique", "ConstantOfShape", "Range", "If", "Loop"})


def of_symbol(graph: ir.Graph, symbol: str) -> str:
    """The origin of a size: its place, and the flags that set it."""
    if not is_inferred(symbol) and symbol in _input_symbols(graph):
        return f"give it with --dim {symbol}=N"
    found = next(_values_with(graph, symbol), None)
    if found is None:
        return "nothing that is given decides it"
    value, axis = found
    return f"it is axis {axis} of {value.name!r}: {of_values([value])}"


def of_values(values: Iterable[ir.Value]) -> str:
    """The origins of the shapes of values, and the flags that set them."""
    values = list(values)
    asked = _Asked(values)
    if not asked.any():
        asked = _Asked(values, every=True)
    if asked.data:
        listed = ", ".join(map(repr, asked.data))
        return f"the numbers in {listed} decide it: no flag does"
    how = [f"--dim {name}=N" for name in asked.sizes]
    how += [f"--shape {name}=SIZES" for name in asked.shapeless]
    how += [f"--set {name}=VALUE" for name in asked.settable]
    return f"give {' '.join(how)}" if how else "nothing that is given decides it"


def of_unknown(values: Sequence[ir.Value]) -> str:
    """The names of values of unknown type or shape, the reason, and a remedy."""
    named = some(sorted(value.name or "" for value in values))
    chosen = next(filter(None, map(_choice, values)), None)
    why = "" if chosen is None else f" ({chosen})"
    return f"values of unknown type or shape: {named}{why}: {of_values(values)}"


def is_inferred(symbol: str) -> bool:
    """Whether inference gave a size its name: no flag knows it."""
    return _INFERRED.fullmatch(symbol) is not None


def _choice(value: ir.Value) -> str | None:
    """The If behind a value of unknown rank, and the ranks of its branches."""
    seen: set[ir.Value] = set()
    waiting = [value]
    while waiting:
        found = waiting.pop()
        node = found.producer()
        if node is None or found in seen or found.shape is not None:
            continue
        seen.add(found)
        if node.op_type == "If" and not node.domain:
            results = [g.outputs[found.index() or 0].shape for g in walk.subgraphs(node)]
            ranks = sorted({len(shape) for shape in results if shape is not None})
            if len(ranks) > 1:
                return f"{label(node)} has branches of {' and '.join(map(str, ranks))} axes"
        waiting += (read for read in node.inputs if read is not None)
    return None


def _input_symbols(graph: ir.Graph) -> set[str]:
    return {name for value in graph.inputs for name in _symbols(value)}


def _symbols(value: ir.Value) -> list[str]:
    """The symbols in a shape, in the order they are written."""
    names: dict[str, None] = {}
    for dim in value.shape or ():
        if isinstance(dim, ir.SymbolicDim) and dim.value is not None:
            names.update(dict.fromkeys(sorted(dim.free_symbols(), key=dim.value.find)))
    return list(names)


def _values_with(graph: ir.Graph, symbol: str) -> Iterator[tuple[ir.Value, int]]:
    """The values with an axis whose size contains a symbol, and that axis."""
    for node in walk.nodes(graph):
        for value in node.outputs:
            for axis, dim in enumerate(value.shape or ()):
                if isinstance(dim, ir.SymbolicDim) and dim.value and symbol in dim.free_symbols():
                    yield value, axis


def _noted(value: ir.Value) -> list[str] | None:
    """The sizes of inputs that elements are made of; None if other terms occur."""
    text = notes(value).get(ELEMENTS)
    if text is None:
        return None
    names = [name for each in json.loads(text) for name in _NAME.findall(str(each))]
    sizes = [name for name in names if name not in _FUNCTIONS]
    return None if not sizes or any(map(is_inferred, sizes)) else sizes


class _Asked:
    """The deciding facts of the inputs, each in the order it was met."""

    def __init__(self, values: Iterable[ir.Value], *, every: bool = False) -> None:
        """Follow shapes back to the inputs: those that have no name, or `every` one."""
        self._every = every
        self.sizes: dict[str, None] = {}
        self.shapeless: dict[str, None] = {}
        self.settable: dict[str, None] = {}
        self.data: dict[str, None] = {}
        self._seen: set[tuple[ir.Value, str]] = set()
        waiting = [(value, SHAPE) for value in values]
        while waiting:
            asked = waiting.pop()
            if asked not in self._seen:
                self._seen.add(asked)
                waiting += reversed(list(self._behind(*asked)))

    def any(self) -> bool:
        """Whether anything was found."""
        return any((self.sizes, self.shapeless, self.settable, self.data))

    def _behind(self, value: ir.Value, what: str) -> Iterator[tuple[ir.Value, str]]:
        node = value.producer()
        if what == SHAPE and value.shape is not None:
            named = all(isinstance(d, int) or d.value is not None for d in value.shape)
            inferred = not named or any(map(is_inferred, _symbols(value)))
            if not inferred and not (self._every and not value.shape.is_static()):
                return
        if value.const_value is not None:
            return
        if node is None:
            self._note(value, what)
            return
        noted = _noted(value) if what == CONTENT else None
        if noted is not None:
            self.sizes.update(dict.fromkeys(noted))
            return
        for graph in walk.subgraphs(node):
            yield from ((v, what) for v in graph.outputs if v.shape is None or what == CONTENT)
        for slot, read in enumerate(node.inputs):
            if read is None:
                continue
            decides = node.op_type in _CONTENT or (slot > 0 and not may_be_float(read))
            shape_only = node.op_type in NO_DATA and not node.domain
            yield read, CONTENT if not shape_only and (what == CONTENT or decides) else SHAPE

    def _note(self, value: ir.Value, what: str) -> None:
        """An input decides; the inputs of bodies are their arguments."""
        name = value.name or ""
        if not value.is_graph_input():
            return
        if what == SHAPE:
            found = _symbols(value)
            self.sizes.update(dict.fromkeys(found))
            if value.shape is None:
                self.shapeless[name] = None
        elif may_be_float(value) or (value.shape is not None and len(value.shape) > 1):
            self.data[name] = None
        else:
            self.settable[name] = None

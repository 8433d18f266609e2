"""Memo of inference, shared by like nodes: the layers of a model repeat."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import onnx_ir as ir

from gradtool.graph.predicates import is_float, is_tensor
from gradtool.graph.renamed import names_in, renamed, rewritten
from gradtool.graph.summarized import definition, summarized
from gradtool.graph.tensors import elements

# Of each output: its type, and the shape that all like it share.
Found = list[tuple[ir.TypeProtocol, ir.Shape]]
Look = tuple[Any, Any, Any]  # at a value: its type, its sizes, its data
Key = tuple[Hashable, tuple[Look | None, ...]]  # a call and its operands

# Smaller tensors of floats may be data that a shape depends on: scales, limits, a step.
_MOST_DATA = 8
_UNLIKE = (ir.AttributeType.GRAPH, ir.AttributeType.TENSOR)


class Memo:
    """Types and shapes of outputs by all their dependences.

    Only for rules that find no more than type and shape: of vectors of integers, which may be
    sizes, inference keeps the elements as well. Results with a symbol of their own are not
    remembered. Nodes are alike also if the symbols have other names.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self._found: dict[Hashable, Found] = {}
        # By the key with usual names, the names of symbols and the results.
        self._renamed: dict[Hashable, tuple[list[str], Found]] = {}
        self._seen: dict[ir.Value, tuple[Any, Any, Any, Look]] = {}
        # Of floats by type and shape, where many have the same.
        self._shared: dict[tuple[int, int], tuple[Any, Any, Look]] = {}

    def infer(self, node: ir.Node, by: Callable[[], object]) -> None:
        """Give the outputs of a node the results of a like one, else run `by`."""
        key = self.key(node)
        if key is None:
            by()
        elif (found := self._found.get(key) or self._of_other_names(key)) is not None:
            for value, (kind, shape) in zip(node.outputs, found, strict=True):
                value.type, value.shape = kind, shape
        else:
            by()
            self._learn(node, key)

    def _of_other_names(self, key: Key) -> Found | None:
        """The results of a node equal but for names of symbols, remembered for this one."""
        names = _names(key)
        known = self._renamed.get(_usual(key, names)) if names else None
        if known is None:
            return None
        now = dict(zip(known[0], names, strict=True))
        self._found[key] = found = [
            (kind, ir.Shape([summarized(renamed(size, now)) for size in shape], frozen=True))
            for kind, shape in known[1]
        ]
        return found

    def _learn(self, node: ir.Node, key: Key) -> None:
        """Remember the results of a node, unless they are of this node only."""
        known = {s for v in node.inputs if v is not None for s in self._symbols(v)}
        found: Found = []
        for value in node.outputs:
            if value.type is None or value.shape is None or self._holds_sizes(value):
                return
            if not free_symbols(value.shape) <= known:
                return
            found.append((value.type, ir.Shape(value.shape, frozen=True)))
        self._found[key] = found
        names = _names(key)
        if names and not any(_is_made(size, names) for _, shape in found for size in shape):
            self._renamed[_usual(key, names)] = names, found

    def key(self, node: ir.Node) -> Key | None:
        """The facts of a node read by inference; None if they cannot be compared."""
        call = self.call(node)
        if call is None:
            return None
        return call, tuple([None if v is None else self.look(v) for v in node.inputs])

    def call(self, node: ir.Node) -> Hashable | None:
        """The facts of a node but for its inputs; None as for `key`."""
        if all(v is None or v.const_value is not None for v in node.inputs):  # its results count
            return None
        return call_of(node)

    def look(self, value: ir.Value) -> Look:
        """The facts of a value read by inference, cached while they cannot change."""
        kind, shape, tensor = value.type, value.shape, value.const_value
        shared = self._shared.get((id(kind), id(shape))) if tensor is None else None
        if shared is not None:
            return shared[2]
        seen = self._seen.get(value)
        if seen is not None and seen[0] is kind and seen[1] is shape and seen[2] is tensor:
            return seen[3]
        found = self._looked(value)
        if tensor is None and shape is not None and shape.frozen and is_float(value):
            self._shared[id(kind), id(shape)] = kind, shape, found
        elif tensor is not None or is_float(value):
            self._seen[value] = kind, shape, tensor, found
        return found

    def _looked(self, value: ir.Value) -> Look:
        """The type, the shape, and the data that shapes can depend on."""
        dims = None if value.shape is None else value.shape.dims
        data: Any = None
        if not is_float(value):
            known = self._context.get_symbolic_value(value)
            data = None if known is None else tuple(known)
        tensor = value.const_value
        if data is None and tensor is not None and elements(tensor) <= _MOST_DATA:
            data = id(tensor)
        kind = value.type
        return kind.dtype if type(kind) is ir.TensorType else kind, dims, data

    def _holds_sizes(self, value: ir.Value) -> bool:
        """Whether more may be known of a value than its type and shape."""
        if is_float(value):
            return False
        vector = not is_tensor(value) or value.shape is None or len(value.shape) < 2
        return vector or self._context.get_symbolic_value(value) is not None

    def _symbols(self, value: ir.Value) -> set[Any]:
        symbols = free_symbols(value.shape or ())
        if value.dtype is not None and not is_float(value):
            symbols |= free_symbols(self._context.get_symbolic_value(value) or ())
        return symbols


def call_of(node: ir.Node) -> Hashable | None:
    """The operator, the attributes and the wanted outputs; None if they can't be compared."""
    attributes = []
    for name, attr in node.attributes.data.items():
        if attr.type in _UNLIKE:
            return None
        value = attr.value
        attributes.append((name, tuple(value) if isinstance(value, (list, tuple)) else value))
    named = tuple([bool(v.name) for v in node.outputs])
    return node.domain, node.op_type, named, tuple(attributes)


def _names(key: Key) -> list[str]:
    """The symbols in the inputs of a node, in the order of the alphabet."""
    return names_in(
        size
        for look in key[1] if look is not None
        for sizes in look[1:] if isinstance(sizes, tuple)
        for size in sizes
    )  # fmt: skip


def _usual(key: Key, names: Iterable[str]) -> Hashable:
    """A key with numbers for names, and the prefix of our own names."""
    usual = {n: f"{n[:2] if n[0] == '_' else ''}#{place}" for place, n in enumerate(names)}

    def told(sizes: Any) -> Hashable:
        return tuple([rewritten(s, usual) for s in sizes]) if isinstance(sizes, tuple) else sizes

    call, looks = key
    return call, tuple([None if x is None else (x[0], told(x[1]), told(x[2])) for x in looks])


def _is_made(size: int | ir.SymbolicDim, names: Iterable[str]) -> bool:
    """Whether a size may be the name of an expression in these symbols."""
    of = (definition(name) for name in names_in([size]))
    return any(each is not None and each.free_symbols() <= {*names} for each in of)


def free_symbols(dims: Iterable[int | ir.SymbolicDim]) -> set[Any]:
    """The symbols of sizes; a size without a name is one of its own."""
    return {symbol for dim in dims for symbol in _free(dim)}


def _free(dim: int | ir.SymbolicDim) -> set[Any]:
    """The symbols of a size; one of its own where it has no name."""
    if isinstance(dim, int):
        return set()
    if dim.value is None:
        return {dim}
    expression = dim._expr  # noqa: SLF001 - onnx-ir offers no public expression
    return {dim} if expression is None else set(expression.free_symbols)

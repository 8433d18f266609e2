"""What inference found for a node, for the nodes that are like it: the layers of a model repeat."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import onnx_ir as ir

from gradtool.graph.predicates import is_float
from gradtool.graph.tensors import elements

# Of each output: its type, and the shape that all like it share.
Found = list[tuple[ir.TypeProtocol, ir.Shape]]

# Smaller tensors of floats may be data that a shape depends on: scales, limits, a step.
_MOST_DATA = 8
_UNLIKE = (ir.AttributeType.GRAPH, ir.AttributeType.TENSOR)


class Memo:
    """Types and shapes of outputs by everything that they can depend on.

    Only of nodes all of whose outputs are floats: integers may be sizes, of which inference keeps
    more than type and shape. Nothing is remembered that has a symbol of its own.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self._found: dict[Hashable, Found] = {}
        self._seen: dict[ir.Value, tuple[Any, Any, Any, Hashable]] = {}
        # Of floats by type and shape, where many have the same.
        self._shared: dict[tuple[int, int], tuple[Any, Any, Hashable]] = {}

    def infer(self, node: ir.Node, by: Callable[[], object]) -> None:
        """Give the outputs of a node what a like one has, else what `by` finds."""
        key = self.key(node)
        if key is not None and self.recall(node, key):
            return
        by()
        if key is not None:
            self.learn(node, key)

    def recall(self, node: ir.Node, key: Hashable) -> bool:
        """Give the outputs of a node what a like one has, if there was one."""
        found = self._found.get(key)
        if found is None:
            return False
        for value, (kind, shape) in zip(node.outputs, found, strict=True):
            value.type, value.shape = kind, shape
        return True

    def learn(self, node: ir.Node, key: Hashable) -> None:
        """Remember what was found for a node, unless it is of this node only."""
        known = {s for v in node.inputs if v is not None for s in self._symbols(v)}
        found: Found = []
        for value in node.outputs:
            if not is_float(value) or value.type is None or value.shape is None:
                return
            if not free_symbols(value.shape) <= known:
                return
            found.append((value.type, ir.Shape(value.shape, frozen=True)))
        self._found[key] = found

    def key(self, node: ir.Node) -> Hashable | None:
        """What inference looks at in a node; None where that is more than can be compared."""
        call = self.call(node)
        if call is None:
            return None
        return call, tuple([None if v is None else self.look(v) for v in node.inputs])

    def call(self, node: ir.Node) -> Hashable | None:
        """What is looked at in a node but for what it reads; None as for `key`."""
        if all(v is None or v.const_value is not None for v in node.inputs):  # what it makes counts
            return None
        attributes = []
        for name, attr in node.attributes.data.items():
            if attr.type in _UNLIKE:
                return None
            value = attr.value
            attributes.append((name, tuple(value) if isinstance(value, (list, tuple)) else value))
        named = tuple([bool(v.name) for v in node.outputs])
        return node.domain, node.op_type, named, tuple(attributes)

    def look(self, value: ir.Value) -> Hashable:
        """What inference looks at in a value: it is looked at once while that cannot change."""
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

    def _looked(self, value: ir.Value) -> Hashable:
        """The type, the shape, and the data that shapes can depend on."""
        dims = None if value.shape is None else value.shape.dims
        data: Hashable = None
        if not is_float(value):
            known = self._context.get_symbolic_value(value)
            data = None if known is None else tuple(known)
        tensor = value.const_value
        if data is None and tensor is not None and elements(tensor) <= _MOST_DATA:
            data = id(tensor)
        kind = value.type
        return kind.dtype if type(kind) is ir.TensorType else kind, dims, data

    def _symbols(self, value: ir.Value) -> set[Any]:
        symbols = free_symbols(value.shape or ())
        if value.dtype is not None and not is_float(value):
            symbols |= free_symbols(self._context.get_symbolic_value(value) or ())
        return symbols


def free_symbols(dims: Iterable[int | ir.SymbolicDim]) -> set[Any]:
    """The symbols that sizes are made of; a size without a name is one of its own."""
    return {symbol for dim in dims for symbol in _free(dim)}


def _free(dim: int | ir.SymbolicDim) -> set[Any]:
    """The symbols of a size; one of its own where it has no name."""
    if isinstance(dim, int):
        return set()
    if dim.value is None:
        return {dim}
    expression = dim._expr  # noqa: SLF001 - onnx-ir offers no public expression
    return {dim} if expression is None else set(expression.free_symbols)

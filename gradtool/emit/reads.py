"""Reads of the emission of nodes: recorded as questions, and asked again of other values.

While they are watched, the given values, their producers and their tensors are of classes that
record which attributes are read, whoever reads them.  An emission is a function of the answers: for
other values with the same ones, the same is emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.predicates import is_float
from gradtool.graph.tensors import elements

Values = Sequence[ir.Value | None]
Question = tuple[str, Any]  # a kind, and the place of a value or a symbol

_FEW = 8  # elements: larger floats are asked for apart, weights are rarely read
_OF_CALL = {"_attributes", "_domain", "_inputs", "_op_type", "_outputs", "_overload", "_version"}
_OF_MAKER = {"_domain", "_op_type"}  # the answer to "_producer"
_OF_TENSOR = {"dtype", "shape", "size", "nbytes", "absent"}  # the answer to "_const_value"

_current: list[Reads | None] = [None]  # the one that records, last


class Reads:
    """A record of the facts of values read while a function runs.

    `questions` are in the order of the first read; `closed` is set once something was read, or
    written, that cannot be asked of other values.
    """

    def __init__(self, op: Builder, given: Values) -> None:
        self._op = op
        self._places: dict[Any, list[int]] = {}  # of values, and of tensors by identity
        for place, value in enumerate(given):
            if value is not None:
                self._places.setdefault(value, []).append(place)
                if value.const_value is not None:
                    self._places.setdefault(id(value.const_value), []).append(place)
        self._asked: dict[Question, None] = {}
        self._node: ir.Node | None = None
        self.closed = False

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions asked."""
        return tuple(self._asked)

    @contextmanager
    def of(self, node: ir.Node) -> Iterator[None]:
        """Record reads of the values, and of `node`, whose call is known."""
        op, self._node = self._op, node
        values = [v for v in self._places if isinstance(v, ir.Value)]
        makers = dict.fromkeys(n for v in values if (n := v.producer()) is not None)
        tensors = {id(t): t for v in values if (t := v.const_value) is not None}
        watched = [*values, *dict.fromkeys([node, *makers]), *tensors.values()]
        before: list[tuple[Any, Any]] = [(thing, type(thing)) for thing in watched]
        active, op.active = op.active, _Watched(self, op.active)
        op.find_symbol = partial(self._symbol, op.find_symbol)  # type: ignore[method-assign]
        op.context.get_symbolic_value = partial(self._elements, op.context.get_symbolic_value)
        _current.append(self)
        try:
            for thing, kind in before:
                thing.__class__ = _watching(kind)
            yield
        finally:
            _current.pop()
            for thing, kind in before:
                thing.__class__ = kind
            op.active = active
            del op.find_symbol, op.context.get_symbolic_value

    def note(self, what: str, thing: object) -> None:
        """Record a question about a value, or about the value of a tensor."""
        for place in self._places.get(thing, ()):
            self._asked[what, place] = None

    def of_value(self, value: ir.Value, name: str) -> None:
        """Record the read of a value's attribute."""
        if name in _ANSWERS:
            self.note(name, value)
        else:
            self.closed = True

    def of_node(self, node: ir.Node, name: str) -> None:
        """Record the read of a node's attribute: of a value's producer little is told."""
        told = _OF_CALL if node is self._node else _OF_MAKER
        self.closed = self.closed or name not in told

    def _symbol(self, find: Callable[[str], Any], symbol: str) -> Any:
        self._asked["symbol", symbol] = None
        return find(symbol)

    def _elements(self, get: Callable[[ir.Value], Any], value: ir.Value) -> Any:
        self.note("sizes", value)
        return get(value)


class _Watched(AbstractSet[ir.Value]):
    """The values whose gradients are wanted, and a record of lookups in them."""

    def __init__(self, reads: Reads, values: AbstractSet[ir.Value]) -> None:
        self._reads, self._values = reads, values

    def __contains__(self, value: object) -> bool:
        self._reads.note("active", value)
        return value in self._values

    def __iter__(self) -> Iterator[ir.Value]:
        self._reads.closed = True
        return iter(self._values)

    def __len__(self) -> int:
        self._reads.closed = True
        return len(self._values)


@cache
def _watching(kind: Any) -> Any:
    """A class of the same layout, whose objects report reads and writes of their attributes."""
    own: dict[str, Any] = {"__slots__": ()}
    if issubclass(kind, ir.Value):
        own |= {name: _told(kind, name, Reads.of_value) for name in ir.Value.__slots__}
        own |= {name: _silent(getattr(kind, name)) for name in ("_add_usage", "_remove_usage")}
    elif issubclass(kind, ir.Node):
        own |= {name: _told(kind, name, Reads.of_node) for name in ir.Node.__slots__}
    else:
        own["__getattribute__"] = _told_of_tensor(kind)
    return type(kind)(f"Watched{kind.__name__}", (kind,), own)


def _told(kind: Any, name: str, tell: Callable[[Reads, Any, str], None]) -> property:
    """A property in place of a stored attribute, which reports its reads."""
    stored = getattr(kind, name)

    def read(self: Any) -> Any:
        reads = _current[-1]
        if reads is not None:
            tell(reads, self, name)
        return stored.__get__(self)

    def write(self: Any, new: Any) -> None:
        if (reads := _current[-1]) is not None:
            reads.closed = True
        stored.__set__(self, new)

    return property(read, write)


def _told_of_tensor(kind: Any) -> Callable[[Any, str], Any]:
    """Attribute access of a tensor: facts are told with `_const_value`, elements are a question."""
    silent = _silent(kind.__getattribute__)

    def read(self: Any, name: str) -> Any:
        if name in _OF_TENSOR:
            return silent(self, name)
        reads = _current[-1]
        if reads is not None and not name.startswith("__"):
            reads.note("elements", id(self))
        return kind.__getattribute__(self, name)

    return read


def _silent(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function during which nothing is recorded: the readers of a value are none of its facts."""

    def silent(*args: Any) -> Any:
        _current.append(None)
        try:
            return function(*args)
        finally:
            _current.pop()

    return silent


# ------------------------------------------------------------------------------- answers


def answers(op: Builder, given: Values, questions: Sequence[Question]) -> tuple[Hashable, ...]:
    """The answers of values to questions that others were asked."""
    return tuple(
        [
            _symbol(op, given, about) if what == "symbol" else _ANSWERS[what](op, given[about])  # type: ignore[arg-type]
            for what, about in questions
        ]
    )


def _symbol(op: Builder, given: Values, symbol: str) -> Hashable:
    """The place and axis of a size, or the value itself if it is not given."""
    found = op.find_symbol(symbol)
    if found is None:
        return None
    value, axis = found
    return next((place for place, v in enumerate(given) if v is value), value), axis


def _type(_op: Builder, value: ir.Value) -> Any:
    return value.dtype if type(value.type) is ir.TensorType else value.type


def _shape(_op: Builder, value: ir.Value) -> Hashable:
    return None if value.shape is None else value.shape.dims


def _tensor(_op: Builder, value: ir.Value) -> Any:
    """The facts of a tensor; its elements too, but for large floats."""
    tensor = value.const_value
    if tensor is None:
        return None
    if is_float(value) and elements(tensor) > _FEW:
        return tensor.dtype, tuple(tensor.shape), getattr(tensor, "absent", False)
    return tensor


def _maker(_op: Builder, value: ir.Value) -> Hashable:
    node = value.producer()
    return None if node is None else (node.domain, node.op_type)


_ANSWERS: Mapping[str, Callable[[Builder, ir.Value], Any]] = {
    "_type": _type,
    "_shape": _shape,
    "_const_value": _tensor,
    "_producer": _maker,
    "_name": lambda _, value: value.name,
    "_index": lambda _, value: value.index(),
    "_is_graph_input": lambda _, value: value.is_graph_input(),
    "_is_graph_output": lambda _, value: value.is_graph_output(),
    "_is_initializer": lambda _, value: value.is_initializer(),
    "_metadata_props": lambda _, value: tuple(sorted(value.metadata_props.items())),
    "active": lambda op, value: value in op.active,
    "elements": lambda _, value: value.const_value,
    "sizes": lambda op, value: _listed(op.context.get_symbolic_value(value)),
}


def _listed(sizes: Sequence[Any] | None) -> Hashable:
    return None if sizes is None else tuple(sizes)

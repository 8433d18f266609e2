"""Sizes as values: the part of the builder that emits them.

Sizes are Python integers where known and `ir.SymbolicDim` expressions where not: known ones are
folded into constants, and the rest is arithmetic on results of `Shape`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import ModelError
from gradtool.graph import deciding
from gradtool.graph.predicates import is_tensor
from gradtool.graph.summarized import MORE, definition
from gradtool.graph.typed import Dim, Dims, Emit, Tensor


class Sizing:
    """A mixin of the builder, which has the members declared here; all ends in `emit` calls."""

    root: ir.Graph
    graph: ir.Graph
    enclosing: list[ir.Graph]
    near: Sequence[ir.Value]
    context: Any
    _symbols: dict[str, tuple[ir.Value, int]]
    _indexed: int  # nodes of the graph whose sizes are among these symbols
    _defined: dict[str, Tensor]

    def __getattr__(self, op_type: str) -> Emit:
        raise AttributeError(op_type)

    if TYPE_CHECKING:

        def constant(self, value: Any, dtype: ir.DataType | None = None) -> Tensor: ...
        def formal(self, hint: str, shape: Dims, dtype: ir.DataType) -> Tensor: ...
        def emit(
            self, op_type: str, inputs: Sequence[Tensor], outputs: int | None,
            attributes: dict[str, Any], like: Tensor | None = None,
        ) -> Tensor: ...  # fmt: skip
        def body(self, inputs: Sequence[ir.Value]) -> AbstractContextManager[ir.Graph]: ...

    def shape(self, x: Tensor) -> Tensor:
        """The shape of `x` as an int64 vector: a constant if it is known."""
        dims = list(x.shape or ())
        if all(isinstance(d, int) for d in dims):
            return self.constant(np.asarray(dims, dtype=np.int64))
        return self.Shape(x)

    def length(self, x: Tensor, axes: Iterable[int] | None = None) -> Tensor:
        """The number of elements of `x` along `axes` (all if None), as a scalar of x's type."""
        chosen = range(len(x.shape)) if axes is None else axes
        dims = [x.shape[a] for a in chosen]
        if all(isinstance(d, int) for d in dims):
            return self.constant(float(np.prod(np.asarray(dims, dtype=np.float64))), x.dtype)
        count = self.ReduceProd(self.sizes(dims), keepdims=0)
        return self.cast(count, x.dtype)

    def sizes(self, dims: Dims) -> Tensor:
        """`dims` as an int64 vector."""
        if all(isinstance(d, int) for d in dims):
            return self.constant(np.asarray(dims, dtype=np.int64))
        return self.Concat(*(self.size(d) for d in dims), axis=0)

    def size_of(self, x: Tensor, start: int, end: int) -> Tensor:
        """The sizes of axes `start` to `end` of `x` as an int64 vector."""
        dims = list(x.shape)[start:end]
        if all(isinstance(d, int) for d in dims):
            return self.constant(np.asarray(dims, dtype=np.int64))
        return self.Shape(x, start=start, end=end)

    def size(self, dim: Dim) -> Tensor:
        """One size as an int64 vector of one element."""
        if isinstance(dim, int):
            return self.constant([dim])
        try:
            expr = dim._expr  # noqa: SLF001 - onnx-ir offers no public expression
        except ValueError as error:
            raise ModelError(f"the size {dim} can't be computed at run time") from error
        found = self._evaluate(expr, dim)
        self.context.set_symbolic_value(found, [dim])  # inference need not know how it rounds
        return found

    def _evaluate(self, expr: Any, dim: ir.SymbolicDim) -> Tensor:
        """Emit the arithmetic of a size expression, symbols read from the shapes of values."""
        import sympy

        if expr is None:
            raise ModelError("a size is unknown and has no name; give it one with --dim or --shape")
        if expr.is_Integer:
            return self.constant([int(expr)])
        if expr.is_Symbol:
            return self._symbol(str(expr), dim)
        if expr.func in (sympy.floor, sympy.ceiling):
            return self._rounded(expr, dim)
        if expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
            return self._fold("Mul", [expr.base] * int(expr.exp), dim)
        folds = {sympy.Add: "Add", sympy.Mul: "Mul", sympy.Max: "Max", sympy.Min: "Min"}
        if _is_quotient(expr):
            over, under = sympy.fraction(sympy.together(expr))
            return self._counted("Div", self._evaluate(over, dim), self._evaluate(under, dim))
        if expr.func in folds:
            return self._fold(folds[expr.func], sorted(expr.args, key=str), dim)
        if expr.func is sympy.Mod:
            return self._fold("Mod", list(expr.args), dim)
        how = "; ".join(deciding.of_symbol(self.root, name) for name in sorted(dim.free_symbols()))
        raise ModelError(f"the size {dim} can't be computed at run time: {how}")

    def _symbol(self, name: str, dim: ir.SymbolicDim) -> Tensor:
        """Emit the size of a symbol, which may follow from a multiple of it."""
        if name in self._defined:
            return self._defined[name]
        found = self.find_symbol(name)
        if found is not None:
            return self.Shape(found[0], start=found[1], end=found[1] + 1)
        if definition(name) is not None:
            return self._by_definition(name, dim)
        multiple = _multiple_of(name, self.root)
        if multiple is None:
            why = deciding.of_symbol(self.root, name)
            raise ModelError(f"the size {name!r} isn't that of a whole axis: {why}")
        value, axis, factor, rest = multiple
        whole = self.Shape(value, start=axis, end=axis + 1)
        whole = self._counted("Sub", whole, self._evaluate(rest, dim))
        return self._counted("Div", whole, self.constant([factor]))

    def _by_definition(self, name: str, dim: ir.SymbolicDim) -> Tensor:
        """Emit the definition of a symbol, and first those of its symbols without an axis."""
        less = self.find_symbol(f"{name} - 1") if name.startswith(MORE) else None
        if less is not None:
            whole = self.Shape(less[0], start=less[1], end=less[1] + 1)
            return self._counted("Add", whole, self.constant([1]))
        waiting, behind = [name], dict[str, Any]()
        while waiting:
            each = waiting.pop()
            of = definition(each)
            if of is not None and (each == name or self.find_symbol(_axis_of_name(each)) is None):
                behind.pop(each, None)
                behind[each] = of._expr  # noqa: SLF001
                waiting += sorted(of.free_symbols())
        for each, expr in reversed(behind.items()):
            self._defined[each] = self._evaluate(expr, dim)
        found = self._defined[name]
        self._defined.clear()
        return found

    def _rounded(self, expr: Any, dim: ir.SymbolicDim) -> Tensor:
        """Emit a quotient rounded down or up; the operator Div rounds towards zero."""
        import sympy

        over, under = sympy.fraction(sympy.together(expr.args[0]))
        if expr.func is sympy.ceiling:
            over += under - 1
        a, b = self._evaluate(over, dim), self._evaluate(under, dim)
        terms = [t for t in sympy.Add.make_args(over) if not t.is_number]
        if over.has(sympy.floor) or any(t.could_extract_minus_sign() for t in terms):
            a = self._counted("Sub", a, self._counted("Mod", a, b))
        return self._counted("Div", a, b)

    def _fold(self, operator: str, terms: Sequence[Any], dim: ir.SymbolicDim) -> Tensor:
        values = [self._evaluate(t, dim) for t in terms]
        result = values[0]
        for value in values[1:]:
            result = self._counted(operator, result, value)
        return result

    def _counted(self, operator: str, a: Tensor, b: Tensor) -> Tensor:
        """Emit an operation on two sizes, better known to the caller than to inference."""
        return self.emit(operator, (a, b), None, {}, like=a)

    def find_symbol(self, symbol: str) -> tuple[ir.Value, int] | None:
        """A value and an axis whose size is `symbol`: inputs first, then results of nodes.

        None where no value has one. The body of a composite looks at its arguments before it looks
        elsewhere.
        """
        for graph in (self.graph, *reversed(self.enclosing)):
            inner = None if graph is self.root else _axis_of(symbol, graph)
            if inner is not None:
                return inner
        own = _axis_among(symbol, self.near)
        if own is not None:
            return own
        if symbol not in self._symbols and self._indexed != len(self.root):
            self._learn(_values(self.root))
        return self._symbols.get(symbol)

    def _index(self, node: ir.Node) -> None:
        """Note the open sizes of the node emitted last, if those of all others are noted."""
        if node.graph is self.root and self._indexed == len(self.root) - 1:
            self._learn(node.outputs)

    def _learn(self, values: Iterable[ir.Value]) -> None:
        for name, value, axis in _open_axes(values):
            self._symbols.setdefault(name, (value, axis))
        self._indexed = len(self.root)


def _is_quotient(expr: Any) -> bool:
    """Whether an expression is one, over a common denominator."""
    if expr.is_Rational:
        return not expr.is_Integer
    if expr.is_Pow:
        return bool(expr.exp.could_extract_minus_sign()) or _is_quotient(expr.base)
    return (expr.is_Add or expr.is_Mul) and any(map(_is_quotient, expr.args))


def _axis_of_name(name: str) -> str:
    """The size of an axis named by a symbol."""
    return f"{name} - 1" if name.startswith(MORE) else name


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    """The inputs of a graph, then the outputs of its nodes."""
    yield from graph.inputs
    for node in graph:
        yield from node.outputs


def _axis_of(symbol: str, graph: ir.Graph) -> tuple[ir.Value, int] | None:
    """The first value of a graph with an axis of size `symbol`, and that axis."""
    return _axis_among(symbol, _values(graph))


def _axis_among(symbol: str, values: Iterable[ir.Value]) -> tuple[ir.Value, int] | None:
    return next(((v, axis) for name, v, axis in _open_axes(values) if name == symbol), None)


def _open_axes(values: Iterable[ir.Value]) -> Iterator[tuple[str, ir.Value, int]]:
    """The open sizes of values, each with its value and axis."""
    for value in filter(is_tensor, values):  # the shape of a sequence is that of its elements
        for axis, dim in enumerate(value.shape or ()):
            if isinstance(dim, ir.SymbolicDim) and dim.value is not None:
                yield dim.value, value, axis


def _multiple_of(symbol: str, graph: ir.Graph) -> tuple[ir.Value, int, int, Any] | None:
    """An input with an axis of size `factor·symbol + rest`, that axis, `factor` and `rest`."""
    from gradtool.io.expressions import linear

    for value in graph.inputs:
        for axis, dim in enumerate(value.shape or ()):
            if isinstance(dim, ir.SymbolicDim) and symbol in dim.free_symbols():
                parts = linear(dim._expr, symbol)  # noqa: SLF001
                if parts and all(_axis_of(str(s), graph) for s in parts[1].free_symbols):
                    return value, axis, *parts
    return None

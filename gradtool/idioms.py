"""Idioms of the builder: short names for what rules do all the time, for any shape.

Sizes are Python integers where known and `ir.SymbolicDim` expressions where not; a helper folds
what is known into constants and emits `Shape` arithmetic for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import ModelError

Dim = int | ir.SymbolicDim


class Idioms:
    """Mixed into the builder; everything here ends in `emit` calls."""

    def __getattr__(self, name: str) -> Any:  # the operators, provided by the builder
        raise AttributeError(name)

    # --------------------------------------------------------------------- sizes

    def shape(self, x: ir.Value) -> ir.Value:
        """The shape of `x` as an int64 vector: a constant if it is known."""
        dims = list(x.shape or ())
        if all(isinstance(d, int) for d in dims):
            return self.constant(np.asarray(dims, dtype=np.int64))
        return self.Shape(x)

    def length(self, x: ir.Value, axes: Iterable[int] | None = None) -> ir.Value:
        """The number of elements of `x` along `axes` (all if None), as a scalar of x's type."""
        chosen = range(len(x.shape)) if axes is None else axes
        dims = [x.shape[a] for a in chosen]
        if all(isinstance(d, int) for d in dims):
            return self.constant(float(np.prod(dims, dtype=np.float64)), x.dtype)
        count = self.ReduceProd(self.sizes(dims), keepdims=0)
        return self.cast(count, x.dtype)

    def sizes(self, dims: Sequence[Dim]) -> ir.Value:
        """`dims` as an int64 vector."""
        if all(isinstance(d, int) for d in dims):
            return self.constant(np.asarray(dims, dtype=np.int64))
        return self.Concat(*(self.size(d) for d in dims), axis=0)

    def size_of(self, x: ir.Value, start: int, end: int) -> ir.Value:
        """The sizes of axes `start` to `end` of `x` as an int64 vector."""
        dims = list(x.shape)[start:end]
        if all(isinstance(d, int) for d in dims):
            return self.constant(np.asarray(dims, dtype=np.int64))
        return self.Shape(x, start=start, end=end)

    def size(self, dim: Dim) -> ir.Value:
        """One size as an int64 vector of one element."""
        if isinstance(dim, int):
            return self.constant([dim])
        try:
            expr = dim._expr  # noqa: SLF001 - onnx-ir offers no public expression
        except ValueError as error:
            raise ModelError(f"the size {dim} can't be computed at run time") from error
        return self._evaluate(expr, dim)

    def _evaluate(self, expr: Any, dim: ir.SymbolicDim) -> ir.Value:
        """Emit the arithmetic of a size expression, symbols read from the shapes of values."""
        import sympy

        if expr is None:
            raise ModelError("a size is unknown and has no name; give it one with --dim or --shape")
        if expr.is_Integer:
            return self.constant([int(expr)])
        if expr.is_Symbol:
            value, axis = self.find_symbol(str(expr))
            return self.Shape(value, start=axis, end=axis + 1)
        if expr.func in (sympy.floor, sympy.ceiling):
            return self._rounded(expr, dim)
        if expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
            return self._fold("Mul", [expr.base] * int(expr.exp), dim)
        folds = {sympy.Add: "Add", sympy.Mul: "Mul", sympy.Max: "Max", sympy.Min: "Min"}
        over, under = sympy.fraction(sympy.together(expr))
        if under != 1:
            return self.Div(self._evaluate(over, dim), self._evaluate(under, dim))
        if expr.func in folds:
            return self._fold(folds[expr.func], sorted(expr.args, key=str), dim)
        if expr.func is sympy.Mod:
            return self._fold("Mod", list(expr.args), dim)
        raise ModelError(f"the size {dim} can't be computed at run time; give it with --dim")

    def _rounded(self, expr: Any, dim: ir.SymbolicDim) -> ir.Value:
        """Emit a quotient that is rounded down or up; the operator Div rounds towards zero."""
        import sympy

        over, under = sympy.fraction(sympy.together(expr.args[0]))
        if expr.func is sympy.ceiling:
            over += under - 1
        a, b = self._evaluate(over, dim), self._evaluate(under, dim)
        terms = [t for t in sympy.Add.make_args(over) if not t.is_number]
        if over.has(sympy.floor) or any(t.could_extract_minus_sign() for t in terms):
            a = self.Sub(a, self.Mod(a, b))
        return self.Div(a, b)

    def _fold(self, operator: str, terms: Sequence[Any], dim: ir.SymbolicDim) -> ir.Value:
        values = [self._evaluate(t, dim) for t in terms]
        result = values[0]
        for value in values[1:]:
            result = getattr(self, operator)(result, value)
        return result

    def find_symbol(self, symbol: str) -> tuple[ir.Value, int]:
        """A value and an axis whose size is `symbol`: inputs first, then what nodes produce.

        The body of a composite looks at what it is called with before it looks elsewhere.
        """
        for graph in (self.graph, *reversed(self.enclosing)):
            inner = None if graph is self.root else _axis_of(symbol, graph)
            if inner is not None:
                return inner
        own = _axis_among(symbol, self.near)
        if own is not None:
            return own
        if symbol not in self._symbols:
            found = _axis_of(symbol, self.root)
            if found is None:
                raise ModelError(
                    f"the size {symbol!r} isn't the size of any value; give it with --dim"
                )
            self._symbols[symbol] = found
        return self._symbols[symbol]

    # ------------------------------------------------------------------- layouts

    def reshape(self, x: ir.Value, dims: Sequence[Dim]) -> ir.Value:
        """`x` with shape `dims`; one size may be -1.  Nothing is emitted if it has that shape.

        In an empty tensor -1 is what it were if all sizes of zero were left out.
        """
        sizes = [d for d in x.shape if isinstance(d, int)]
        wanted = [d for d in dims if isinstance(d, int)]
        static = len(sizes) == len(x.shape) and len(wanted) == len(dims)
        if static and 0 in wanted and -1 in wanted:
            left = math.prod(d for d in sizes if d) // math.prod(d for d in wanted if d > 0)
            dims = [left if d == -1 else d for d in wanted]
        if list(x.shape) == list(dims):
            return x
        unknown = [i for i, d in enumerate(dims) if not isinstance(d, int)]
        if not unknown:
            known = np.asarray(dims, dtype=np.int64)
            return self.Reshape(x, known, allowzero=1 if 0 in dims else None)
        if 0 not in dims:
            plan: list[Any] = list(dims)
            for i in unknown:
                if i < len(x.shape) and x.shape[i] == dims[i]:
                    plan[i] = 0
            rest = [i for i, d in enumerate(plan) if not isinstance(d, int)]
            if len(rest) == 1 and -1 not in plan:
                plan[rest[0]] = -1
                rest = []
            if not rest:
                return self.Reshape(x, np.asarray(plan, dtype=np.int64))
        return self.Reshape(x, self.sizes(dims), allowzero=1 if 0 in dims else None)

    def reshape_like(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """`x` with the shape of `y`."""
        return self.reshape(x, list(y.shape))

    def transpose(self, x: ir.Value, perm: Sequence[int]) -> ir.Value:
        """`x` with axes in the order `perm`."""
        return x if list(perm) == list(range(len(x.shape))) else self.Transpose(x, perm=list(perm))

    def swap_axes(self, x: ir.Value, a: int, b: int) -> ir.Value:
        """`x` with axes `a` and `b` exchanged."""
        perm = list(range(len(x.shape)))
        perm[a], perm[b] = perm[b], perm[a]
        return self.transpose(x, perm)

    def squeeze(self, x: ir.Value, axes: int | Sequence[int]) -> ir.Value:
        """`x` without the axes of size one named by `axes`."""
        axes = [axes] if isinstance(axes, int) else list(axes)
        return self.Squeeze(x, axes) if axes else x

    def unsqueeze(self, x: ir.Value, axes: int | Sequence[int]) -> ir.Value:
        """`x` with axes of size one inserted, so that they are at `axes` of the result."""
        axes = [axes] if isinstance(axes, int) else list(axes)
        return self.Unsqueeze(x, axes) if axes else x

    def slice(self, x: ir.Value, axis: int, start: int, end: int, step: int = 1) -> ir.Value:
        """`x[..., start:end:step, ...]` along one axis, with constant bounds."""
        return self.Slice(x, [start], [end], [axis], [step])

    def crop(self, x: ir.Value, sizes: Sequence[Dim], axes: Iterable[int]) -> ir.Value:
        """The first `sizes` elements of `x` along `axes`."""
        cut = [(a, s) for a, s in zip(axes, sizes, strict=True) if x.shape[a] != s]
        if not cut:
            return x
        ends = self.sizes([s for _, s in cut])
        return self.Slice(x, [0] * len(cut), ends, [a for a, _ in cut])

    def concat(self, parts: Sequence[ir.Value], axis: int) -> ir.Value:
        """The parts joined along `axis`; a single part is itself."""
        return parts[0] if len(parts) == 1 else self.Concat(*parts, axis=axis)

    # ------------------------------------------------------------- numbers, sums

    def cast(self, x: ir.Value, dtype: ir.DataType) -> ir.Value:
        """`x` as `dtype`; nothing is emitted if it is."""
        return x if x.dtype == dtype else self.Cast(x, to=dtype)

    def sum(self, x: ir.Value, axes: Iterable[int], *, keepdims: bool = False) -> ir.Value:
        """The sum over `axes` (none: `x` itself)."""
        axes = list(axes)
        return self.ReduceSum(x, axes, keepdims=int(keepdims)) if axes else x

    def mean(self, x: ir.Value, axes: Iterable[int], *, keepdims: bool = True) -> ir.Value:
        """The mean over `axes`, kept as axes of size one."""
        axes = list(axes)
        return self.ReduceMean(x, axes, keepdims=int(keepdims)) if axes else x

    def zeros_like(self, x: ir.Value) -> ir.Value:
        """Zeros of the shape and type of `x`; a sequence of zeros for a sequence.

        The gradient of an optional value is that of what it holds.
        """
        if isinstance(x.type, ir.OptionalType):
            if not isinstance(x.type.elem_type, ir.TensorType) or x.shape is None:
                return self.zeros_like(self.OptionalGetElement(x))
            zero = np.zeros(1, dtype=x.dtype.numpy())
            return self.ConstantOfShape(self.sizes(list(x.shape)), value=zero)
        if isinstance(x.type, ir.SequenceType):
            return self.each(self.zeros_like, x)
        zero = np.zeros(1, dtype=x.dtype.numpy())
        return self.ConstantOfShape(self.shape(x), value=zero)

    def plus(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The sum of two gradients of one value: of tensors, or element by element."""
        return self.total([a, b])

    def total(self, terms: Sequence[ir.Value]) -> ir.Value:
        """The sum of several gradients of one value."""
        if isinstance(terms[0].type, ir.TensorType):
            add = self.Add if len(terms) == 2 else self.Sum
            like = terms[0] if terms[0].shape is None else None  # an element of a sequence
            total: ir.Value = add(*terms, like=like)
            return total
        return self.each(self.total, *terms)

    def each(self, function: Callable[..., ir.Value], *sequences: ir.Value) -> ir.Value:
        """The sequence of `function(…)` of the elements of sequences."""
        formal = [self.formal("element", s.shape or (), s.dtype) for s in sequences]
        for value, sequence in zip(formal, sequences, strict=True):
            value.shape = sequence.shape
        with self.body(formal) as body:
            body.outputs.append(function(formal if len(formal) > 1 else formal[0]))
        made: ir.Value = self.SequenceMap(*sequences, body=body)
        return made

    def expand(self, x: ir.Value, like: ir.Value) -> ir.Value:
        """`x` broadcast to the shape of `like`."""
        return x if list(x.shape) == list(like.shape) else self.Expand(x, self.shape(like))

    def unbroadcast(self, dy: ir.Value, x: ir.Value) -> ir.Value:
        """`dy` summed over the axes along which `x` was broadcast: it then has the shape of `x`.

        An axis whose sizes can't be compared now is decided at run time, from the shapes.
        """
        lead = len(dy.shape) - len(x.shape)
        pairs = list(zip(dy.shape[lead:], x.shape, strict=True))
        if any(d != s and not isinstance(s, int) for d, s in pairs):
            return self._unbroadcast_at_run_time(dy, x, lead)
        stretched = [lead + i for i, (d, s) in enumerate(pairs) if s == 1 and d != 1]
        if lead and stretched:
            summed = self.ReduceSum(dy, [*range(lead), *stretched], keepdims=0)
            return self.Unsqueeze(summed, [a - lead for a in stretched])
        if lead:
            return self.sum(dy, range(lead))
        return self.sum(dy, stretched, keepdims=True)

    def _unbroadcast_at_run_time(self, dy: ir.Value, x: ir.Value, lead: int) -> ir.Value:
        shape = self.Shape(x)
        padded = self.Concat([1] * lead, shape, axis=0) if lead else shape
        differs = self.Not(self.Equal(padded, self.Shape(dy)))
        axes = self.Squeeze(self.NonZero(differs), [0])
        summed = self.ReduceSum(dy, axes, keepdims=1, noop_with_empty_axes=1)
        result = self.Reshape(summed, shape)
        result.shape = x.shape
        return result


def _axis_of(symbol: str, graph: ir.Graph) -> tuple[ir.Value, int] | None:
    """The first value of a graph with an axis of size `symbol`, and that axis."""
    return _axis_among(symbol, (*graph.inputs, *(v for n in graph for v in n.outputs)))


def _axis_among(symbol: str, values: Iterable[ir.Value]) -> tuple[ir.Value, int] | None:
    for value in values:
        for axis, dim in enumerate(value.shape or ()):
            if isinstance(dim, ir.SymbolicDim) and dim.value == symbol:
                return value, axis
    return None

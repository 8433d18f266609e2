"""Inference rules of broadcasting: the library's take any two symbols to be equal."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import onnx_ir as ir

from gradtool.graph.renamed import whatever_named
from gradtool.graph.summarized import summarized
from gradtool.shapes import contents

Dim = Any  # int | ir.SymbolicDim: the library has no types

BROADCASTING = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor"), 7),
    **dict.fromkeys(("Equal", "Less", "Greater"), 7),
    **dict.fromkeys(("LessOrEqual", "GreaterOrEqual"), 12),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), 8),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), 18),
    "BitShift": 11,
    "Mod": 10,
    "Where": 9,
}


def _elementwise(library: Any, ctx: Any, node: ir.Node) -> None:
    """Either of two different symbols may be 1: the size is the larger."""
    library(ctx, node)
    y = node.outputs[0]
    shapes = [value.shape for value in node.inputs if value is not None]
    if y.shape is not None:
        ctx.set_shape(y, _joined(y.shape, [s for s in shapes if s is not None]))
    contents.propagate(ctx, node)


def _matmul(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's gives two batches of unlike symbols a symbol of their own."""
    library(ctx, node)
    y, (a, b) = node.outputs[0], node.inputs
    if a is None or b is None or None in (a.shape, b.shape, y.shape):
        return
    if len(a.shape) > 2 and len(b.shape) > 2:  # type: ignore[arg-type]
        batch = _joined(ir.Shape(list(y.shape)[:-2]), [list(v.shape)[:-2] for v in (a, b)])  # type: ignore[arg-type]
        ctx.set_shape(y, ir.Shape([*batch, *list(y.shape)[-2:]]))  # type: ignore[arg-type]


def _expand(library: Any, ctx: Any, node: ir.Node) -> None:
    """Infer the rank if the shape is computed; the library's infers nothing then."""
    library(ctx, node)
    (x, target), y = node.inputs, node.outputs[0]
    if x is None or x.shape is None or target is None:
        return
    wanted = ctx.get_symbolic_value(target)
    if y.shape is not None:
        ctx.set_shape(y, _joined(y.shape, [x.shape, *([] if wanted is None else [wanted])]))
        return
    rank = target.shape[0] if target.shape is not None and len(target.shape) == 1 else None
    if isinstance(rank, int):
        rank = max(rank, len(x.shape))
        dims = [*[1] * (rank - len(x.shape)), *x.shape]
        known = (d if isinstance(d, int) and d != 1 else ctx.new_symbolic_dim() for d in dims)
        ctx.set_shape_and_dtype(y, ir.Shape(known), x.dtype)


def _joined(shape: ir.Shape, shapes: Sequence[Iterable[Dim]]) -> ir.Shape:
    """The shape found by the library, with the largest of symbols that differ."""
    rank = len(shape)
    dims = list(shape)
    for axis, size in enumerate(dims):
        if isinstance(size, int):
            continue
        met = [s[axis - rank] for s in map(list, shapes) if len(s) >= rank - axis]
        symbols = {d.value: d for d in met if isinstance(d, ir.SymbolicDim) and d.value}
        if len(symbols) > 1:
            dims[axis] = _largest(tuple(symbols.values()))
    return ir.Shape(dims)


@functools.lru_cache(maxsize=4096)
def _largest(sizes: tuple[ir.SymbolicDim, ...]) -> Dim:
    def larger(a: Dim, b: Dim) -> Dim:
        return summarized(_larger(a, b))

    return functools.reduce(larger, sizes)


@whatever_named
def _larger(a: Dim, b: Dim) -> Dim:
    import sympy

    first, second = a._expr, b._expr  # noqa: SLF001 - as in sizing
    alike = not (first.is_Symbol and second.is_Symbol)  # of which nothing more is known
    return ir.SymbolicDim(sympy.Max(first, second, evaluate=alike))


RULES = {
    **dict.fromkeys(BROADCASTING.items(), _elementwise),
    ("Expand", 8): _expand,
    ("MatMul", 1): _matmul,
}

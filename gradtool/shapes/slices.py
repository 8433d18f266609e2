"""The inference rule of Slice: the library's bounds are not those of the standard."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from gradtool.graph.predicates import is_float
from gradtool.graph.renamed import whatever_named
from gradtool.operators.slicing import extent
from gradtool.shapes import contents

Dim = Any  # int | ir.SymbolicDim: the library has no types

# Bounds of a slice that no axis reaches.
FAR = 2**31 - 1


def _slice(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's bounds are not the standard's, nor does it doubt that `x[:5]` has 5."""
    x, y = node.inputs[0], node.outputs[0]
    found = None if x is None or x.shape is None else _sizes(ctx, node, x.shape)
    if x is not None and found and None not in found.values() and is_float(x):
        y.type = x.type
    else:  # a slice of integers may be a vector of sizes
        library(ctx, node)
    if (
        x is None
        or x.shape is None
        or found is None
        or (y.shape is None and None in found.values())
    ):
        return
    dims: list[Dim] = list(x.shape)
    for axis, size in found.items():
        dims[axis] = y.shape[axis] if size is None and y.shape is not None else size
    ctx.set_shape(y, ir.Shape(dims))


def _sizes(ctx: Any, node: ir.Node, shape: ir.Shape) -> dict[int, Dim | None] | None:
    """The sizes of sliced axes, None if unknown; None for all if the axes are unknown."""
    optional = [*node.inputs[3:], None, None]
    starts, ends, axes, steps = (
        None if v is None else ctx.get_symbolic_value(v) for v in (*node.inputs[1:3], *optional[:2])
    )
    if axes is None and optional[0] is None and starts is not None:
        axes = list(range(len(starts)))
    if axes is None or not all(isinstance(axis, int) for axis in axes):
        return None
    found: dict[int, Dim | None] = {}
    for place, axis in enumerate(axes):
        step = 1 if optional[1] is None else None if steps is None else steps[place]
        found[axis] = None
        if starts is not None and ends is not None and isinstance(step, int) and step != 0:
            found[axis] = _cut(shape[axis], starts[place], ends[place], step)
    return found


def _cut(size: Dim, start: Dim, end: Dim, step: int) -> Dim | None:
    """The size of a slice of an axis; None if unknown."""
    if not isinstance(start, int) or not isinstance(end, int):
        if step == 1 and contents.is_nonnegative(start) and contents.is_nonnegative(end):
            far = isinstance(end, int) and end >= FAR
            return contents.extent(size, start, size if far else end)
        # From as many places before the end as there are, of which none at all is all as well.
        whole = step == 1 and isinstance(end, int) and end >= FAR
        return size if whole and contents.is_zero(size + start) else None
    if isinstance(size, int):
        return extent(size, start, end, step)[2]
    if 0 <= start < end < FAR and step > 0:
        return _clamped(size, start, end, step)
    if step == 1 and start >= 0 and end >= FAR:
        return _rest(size, start)
    if step > 0 and end <= -FAR:
        return 0
    return ir.SymbolicDim(f"min(1, {size.value})") if step < 0 and start <= -FAR else None


@whatever_named
def _rest(size: ir.SymbolicDim, start: int) -> Dim:
    """The size of an axis from a place on."""
    return ir.SymbolicDim(f"max(0, {size.value} - {start})").evaluate({}) if start else size


@whatever_named
def _clamped(size: ir.SymbolicDim, first: int, last: int, step: int) -> Dim:
    """The number of elements of `range(first, last, step)` below `size`."""
    reach = f"min({size.value}, {last}) - {first}"
    count = f"max(0, floor(({reach} + {step - 1}) / {step}))" if step > 1 else f"max(0, {reach})"
    return ir.SymbolicDim(count).evaluate({})


RULES = {("Slice", 10): _slice}

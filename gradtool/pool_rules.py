"""Inference rules of pooling: the library's have no floor in sizes, nor windows that don't fit."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from gradtool.attributes import arguments
from gradtool.windows import Window

Dim = Any  # int | ir.SymbolicDim: the library has no types


def _pool(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's sizes, but as `Window.count` counts; with SAME also of open images."""
    library(ctx, node)
    x, given = node.inputs[0], arguments(node)
    if x is None or x.shape is None or len(x.shape) != 2 + len(given["kernel_shape"]):
        return
    same = given.get("auto_pad", "NOTSET").startswith("SAME")
    window = Window.of(given["kernel_shape"], (), {**given, "auto_pad": "VALID"} if same else given)
    ceil = bool(given.get("ceil_mode", 0))
    sizes = [
        _parts(size, window.strides[axis]) if same else _count(window, axis, size, ceil=ceil)
        for axis, size in enumerate(x.shape[2:])
    ]
    for value in node.outputs:
        if value.shape is not None:
            ctx.set_shape(value, ir.Shape([*x.shape[:2], *sizes]))


def _parts(size: Dim, stride: int) -> Dim:
    """`size / stride`, rounded up."""
    return size if stride == 1 else (size + (stride - 1)) // stride


def _count(window: Window, axis: int, size: Dim, *, ceil: bool) -> Dim:
    """The windows along an axis; those of an open one as an expression."""
    if isinstance(size, int):
        return window.count(axis, size, ceil=ceil)
    begin, stride = window.begin[axis], window.strides[axis]
    free = window.extent[axis] - window.end[axis]
    room = size + (begin - free)
    if not ceil or stride == 1:
        return room // stride + 1
    count = _parts(room, stride) + 1
    if free >= stride:
        return count
    return ir.SymbolicDim(f"min({count.value}, {_parts(size + begin, stride).value})")


RULES = {("MaxPool", 1): _pool, ("AveragePool", 1): _pool, ("LpPool", 1): _pool}

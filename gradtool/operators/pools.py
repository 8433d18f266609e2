"""Inference rules of windows: the library's have no floor in sizes, nor windows that don't fit."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from gradtool.graph.attributes import arguments
from gradtool.operators.windows import Window, transposed

Dim = Any  # int | ir.SymbolicDim: the library has no types


def _pool(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's sizes, but as `Window.count` counts; with SAME also of open images."""
    library(ctx, node)
    x, given = node.inputs[0], arguments(node)
    if x is None or x.shape is None or len(x.shape) != 2 + len(given["kernel_shape"]):
        return
    ceil = bool(given.get("ceil_mode", 0))
    if given.get("auto_pad", "NOTSET").startswith("SAME"):
        window = Window.of(given["kernel_shape"], (), {**given, "auto_pad": "VALID"})
        sizes = [_same(window, axis, size, ceil=ceil) for axis, size in enumerate(x.shape[2:])]
    else:
        window = Window.of(given["kernel_shape"], (), given)
        sizes = [_count(window, axis, size, ceil=ceil) for axis, size in enumerate(x.shape[2:])]
        if not ceil:
            _require_fit(ctx, node, window, x.shape[2:])
    for value in node.outputs:
        if value.shape is not None:
            ctx.set_shape(value, ir.Shape([*x.shape[:2], *sizes]))


def _require_fit(ctx: Any, node: ir.Node, window: Window, sizes: Any) -> None:
    """Refuse a window that sticks out by less than a step: the standard has none, runtimes one."""
    for axis, size in enumerate(sizes):
        if isinstance(size, int) and -window.strides[axis] < window.room(axis, size) < 0:
            extent, padded = window.extent[axis], size + window.begin[axis] + window.end[axis]
            problem = f"its window of {extent} does not fit into the {padded} of axis {axis + 2}"
            ctx.record_error(node, problem)


def _same(window: Window, axis: int, size: Dim, *, ceil: bool) -> Dim:
    """The windows along an axis with SAME, whose padding ignores dilations.

    Their further reach costs whole strides of the last windows.
    """
    stride = window.strides[axis]
    beyond = window.extent[axis] - window.kernel[axis]
    return _parts(size, stride) - (beyond // stride if ceil else _parts(beyond, stride))


def _parts(size: Dim, stride: int) -> Dim:
    """`size / stride`, rounded up."""
    return size if stride == 1 else (size + (stride - 1)) // stride


def _count(window: Window, axis: int, size: Dim, *, ceil: bool) -> Dim:
    """The number of windows along an axis; of an open one as an expression."""
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


def _convolution(slot: int) -> Any:
    """The library's, for windows that fit; the weight is the input at `slot`."""

    def rule(library: Any, ctx: Any, node: ir.Node) -> None:
        library(ctx, node)
        x, weight, given = node.inputs[0], node.inputs[slot], arguments(node)
        if x is None or weight is None or x.shape is None or weight.shape is None:
            return
        kernel = [size for size in weight.shape[2:] if isinstance(size, int)]
        same = given.get("auto_pad", "NOTSET").startswith("SAME")
        if not same and len(kernel) == len(x.shape) - 2:
            _require_fit(ctx, node, Window.of(kernel, (), given), x.shape[2:])

    return rule


def _transposed(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's; with SAME no more than the windows cover."""
    library(ctx, node)
    x, weight, made, given = node.inputs[0], node.inputs[1], node.outputs[0], arguments(node)
    if x is None or weight is None or weight.shape is None or made.shape is None:
        return
    same = given.get("auto_pad", "NOTSET").startswith("SAME") and not given.get("output_shape")
    kernel = [size for size in weight.shape[2:] if isinstance(size, int)]
    if not same or x.shape is None or len(kernel) != len(x.shape) - 2:
        return
    window, extra = transposed(kernel, x.shape[2:], (), given)
    reach = zip(x.shape[2:], window.strides, window.extent, extra, strict=True)
    sizes = [n * s - max(0, s - extent - e) for n, s, extent, e in reach]
    ctx.set_shape(made, ir.Shape([*made.shape[:2], *sizes]))


RULES = {
    **{(name, 1): _pool for name in ("MaxPool", "AveragePool", "LpPool")},
    **{(name, 1): _convolution(1) for name in ("Conv", "DeformConv", "ConvInteger")},
    ("QLinearConv", 1): _convolution(3),
    ("ConvTranspose", 1): _transposed,
}

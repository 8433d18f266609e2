"""Composites of the conv family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Tensor, ints, static
from gradtool.operators.windows import Window
from gradtool.ops.conv.body_weight import Form
from gradtool.ops.shared.symbolic_sizes import dims


def _input_shapes(dy: Tensor, w: Tensor, sizes: Tensor, **attributes: Any) -> Outputs:
    return [(dims(sizes), dy.dtype)]


@composite("ConvGradInput", shapes=_input_shapes)
def conv_grad_input(
    op: Builder,
    dy: Tensor,
    w: Tensor,
    sizes: Tensor,
    *,
    group: int,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> Tensor:
    """`dx` of shape `sizes`: the transposed convolution of dy by w.

    Without strides that is a convolution by w turned round, in which runtimes copy less: a
    transposed one is a product whose result has all taps of all places.  Where w is larger than
    that, turning it round costs more.  Where a size is unknown, dx is made as large as it can be
    and cut at run time.
    """
    given = {"strides": strides, "dilations": dilations, "pads": pads}
    window = Window.of(ints(w.shape[2:]), (), given)
    spatial = dims(sizes)[2:]
    spread = {"group": group, "strides": strides, "dilations": dilations}
    out = dy.shape[2:]
    if static(spatial) and static(out):
        flat = all(s == 1 for s in window.strides)
        if flat and static(w.shape) and math.prod(ints(out)) > w.shape[0] // group:
            return _turned(op, dy, w, window, group, ints(spatial))
        reach = zip(window.covered(out), window.begin, spatial, strict=True)
        ends = [covered - begin - size for covered, begin, size in reach]
        return op.ConvTranspose(
            dy, w, **spread,
            pads=[*window.begin, *(max(0, e) for e in ends)],
            output_padding=[max(0, -e) for e in ends],
        )  # fmt: skip

    full = op.ConvTranspose(dy, w, **spread, output_padding=[s - 1 for s in window.strides])
    starts = op.constant(list(window.begin))
    axes = list(range(2, len(dy.shape)))
    return op.Slice(full, starts, op.Add(op.Slice(sizes, [2], [len(dy.shape)]), starts), axes)


def _turned(
    op: Builder, dy: Tensor, w: Tensor, window: Window, group: int, spatial: Sequence[int]
) -> Tensor:
    """The transposed convolution with strides of 1, as a convolution by w turned round."""
    maps, each, *kernel = ints(w.shape)
    rest = range(2, len(w.shape))
    for axis in rest:
        if w.shape[axis] != 1:
            w = op.Gather(w, op.constant(list(range(kernel[axis - 2]))[::-1]), axis=axis)
    if group == 1:
        w = op.swap_axes(w, 0, 1)
    else:
        w = op.reshape(w, [group, maps // group, each, *kernel])
        w = op.transpose(w, [0, 2, 1, *(axis + 1 for axis in rest)])
        w = op.reshape(w, [group * each, maps // group, *kernel])
    begin = [extent - 1 - b for extent, b in zip(window.extent, window.begin, strict=True)]
    sizes = zip(spatial, ints(dy.shape[2:]), window.extent, begin, strict=True)
    end = [size - count + extent - 1 - b for size, count, extent, b in sizes]
    pads = [max(0, p) for p in (*begin, *end)]
    dx = op.Conv(dy, w, group=group, dilations=window.dilations, pads=pads)
    if min(*begin, *end) >= 0:
        return dx
    starts = [max(0, -b) for b in begin]
    ends = [start + size for start, size in zip(starts, spatial, strict=True)]
    return op.Slice(dx, starts, ends, list(rest))


def _weight_shapes(
    x: Tensor, dy: Tensor, *, kernel_shape: Sequence[int], group: int, **attributes: Any
) -> Outputs:
    return [([dy.shape[1], x.shape[1] // group, *kernel_shape], x.dtype)]


@composite("ConvGradWeight", shapes=_weight_shapes)
def conv_grad_weight(
    op: Builder,
    x: Tensor,
    dy: Tensor,
    *,
    kernel_shape: Sequence[int],
    group: int,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> Tensor:
    """`dw[M, C/G, *kernel] = Σ x · dy`, over samples and the elements under each tap."""
    given = {"strides": strides, "dilations": dilations, "pads": pads}
    window = Window.of(kernel_shape, (), given)
    return Form(op, window, group)(x, dy)

"""The gradient of deformable convolution, over its columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gradtool.emit.builder import Builder
from gradtool.errors import UnsupportedGradient
from gradtool.graph.attributes import arguments
from gradtool.graph.typed import Node, Tensor, given, ints, static
from gradtool.operators.windows import Window
from gradtool.ops.gradients import Gradients, gradient
from gradtool.ops.signal.body import scalar

SAMPLING = {"mode": "linear", "padding": "zeros", "align_corners": 1}


@gradient("DeformConv")
def deform_conv(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = w · c` with columns `c = x(place + offset) · mask`.

        dw = Σ dy · cᵀ        dc = wᵀ · dy        dmask = Σ dc · x(…)

    The rest is the gradient of sampling x at positions, by x and by the position.
    """
    (x, w, offset), bias, mask = node.inputs[:3], given(node, 3), given(node, 4)
    options = arguments(node)
    group, shared = options.get("group", 1), options.get("offset_group", 1)
    if not static(w.shape):
        raise UnsupportedGradient(node, "the size of its weights is unknown; give it with --dim")
    sizes = ints(w.shape)
    rank, taps = len(x.shape) - 2, math.prod(sizes[2:])
    channels, made = sizes[1] * group // shared, sizes[0] // group
    places = op.ReduceProd(op.size_of(dy, 2, rank + 2), keepdims=1)

    def flat(value: Tensor, *lead: int) -> Tensor:
        return op.Reshape(value, op.Concat(list(lead), places, axis=0))

    where = flat(offset, -1, taps, rank)  # N·groups of offsets
    where = op.Transpose(where + _origins(op, node, options), perm=[0, 1, 3, 2])
    where = op.Reshape(where, [0, -1, rank])
    images = op.Reshape(x, op.Concat([-1, channels], op.size_of(x, 2, rank + 2), axis=0))
    values = op.Sample(images, where, **SAMPLING)
    by_tap = flat(values, -1, channels, taps)
    columns = by_tap
    if mask is not None:
        mask_by_tap = flat(mask, -1, 1, taps)
        columns = by_tap * mask_by_tap

    depth = sizes[1] * taps
    c = flat(columns, -1, group, depth)
    g = flat(dy, -1, group, made)
    dw = op.ReduceSum(op.MatMul(g, op.swap_axes(c, 2, 3)), [0], keepdims=0)
    dw = op.Reshape(dw, op.shape(w))
    weights = op.Reshape(w, [group, made, depth])
    dc = op.MatMul(op.swap_axes(weights, 1, 2), g)
    dc = flat(dc, -1, channels, taps)

    dmask = None
    if mask is not None:
        dmask = op.ReduceSum(dc * by_tap, [1], keepdims=0)
        dmask = op.Reshape(dmask, op.shape(mask))
        dc = dc * mask_by_tap
    dc = op.Reshape(dc, [0, 0, -1])
    dx = op.Reshape(op.SampleGradInput(where, dc, op.shape(images), **SAMPLING), op.shape(x))
    moved = op.SampleGradPositions(images, where, dc, **SAMPLING)
    moved = op.Transpose(op.Reshape(moved, [0, taps, -1, rank]), perm=[0, 1, 3, 2])
    doffset = op.Reshape(moved, op.shape(offset))
    db = None if bias is None else op.sum(dy, [0, *range(2, rank + 2)])
    return dx, dw, doffset, db, dmask


def _origins(op: Builder, node: Node, options: Mapping[str, Any]) -> Tensor:
    """Positions of the taps of each window without offsets: `[taps, rank, places]`."""
    x, w = node.inputs[:2]
    y = node.outputs[0]
    window = Window.of(ints(w.shape[2:]), (), options)
    dtype = x.dtype.numpy()
    taps = np.indices(window.kernel).reshape(window.rank, -1)
    steps = (taps * np.array(window.dilations)[:, None] - np.array(window.begin)[:, None]).T
    axes = []
    for a, stride in enumerate(window.strides):
        line = op.Range(op.constant(0), scalar(op, y.shape[2 + a]), op.constant(1))
        line = op.cast(line * stride, x.dtype)
        line = op.Reshape(line, [-1 if b == a else 1 for b in range(window.rank)])
        grid = op.Expand(line, op.size_of(y, 2, 2 + window.rank))
        axes.append(op.Reshape(grid, [1, 1, -1]))
    return op.concat(axes, 1) + op.constant(steps[:, :, None].astype(dtype))

"""Gradients of grids, samples and regions of interest."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Node, Tensor
from gradtool.ops.gradients import Gradients, gradient, zero_gradient

zero_gradient("NonMaxSuppression", "ImageDecoder")
MODES = {"bilinear": "linear", "bicubic": "cubic"}
HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


@gradient("AffineGrid")
def affine_grid(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y[n, p] = theta[n] (points[p], 1)`:  dtheta = Σ dy ⊗ (points, 1)."""
    corners = node.attributes.get_int("align_corners", 0)
    return op.AffineGridGrad(dy, node.inputs[1], align_corners=corners)


@gradient("GridSample")
def grid_sample(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = x` at positions between its elements, that the grid gives from -1 to 1.

    The weights of the elements around a position give dx, their derivatives dgrid. The nearest
    element doesn't change with the position: dgrid = 0.
    """
    x, grid = node.inputs
    mode = node.attributes.get_string("mode", "bilinear")
    options = {
        "mode": MODES.get(mode, mode),
        "padding": node.attributes.get_string("padding_mode", "zeros"),
        "align_corners": node.attributes.get_int("align_corners", 0),
    }
    rank = len(x.shape) - 2
    wide = ir.DataType.FLOAT if grid.dtype in HALF else grid.dtype
    sizes = _sizes(op, x, wide)
    flat = op.reshape(op.cast(grid, wide), [grid.shape[0], -1, rank])
    turned = op.slice(flat, 2, -1, -(rank + 1), -1) + 1.0
    if options["align_corners"]:
        scale = (sizes - 1.0) * 0.5
        where = turned * scale
    else:
        scale = sizes * 0.5
        where = turned * scale - 0.5
    dy = op.reshape(dy, [*list(dy.shape)[:2], -1])
    dx = op.SampleGradInput(where, dy, op.shape(x), **options)
    if options["mode"] == "nearest":
        return dx, None
    moved = op.SampleGradPositions(op.cast(x, wide), where, op.cast(dy, wide), **options) * scale
    dgrid = op.slice(moved, 2, -1, -(rank + 1), -1)
    return dx, op.cast(op.Reshape(dgrid, op.shape(grid)), grid.dtype)


def _sizes(op: Builder, x: Tensor, dtype: ir.DataType) -> Tensor:
    """The spatial sizes of x as floats."""
    known = list(x.shape)[2:]
    if all(isinstance(n, int) for n in known):
        return op.constant(np.asarray(known, dtype.numpy()))
    return op.cast(op.sizes(known), dtype)


@gradient("RoiAlign")
def roi_align(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y[r] = up x[batch[r]] acrossᵀ`: two matrices that average samples, by the region.

    Mode max takes `x[corner] · weight`, the largest of the corners of all samples of a bin: the
    first of the largest takes the gradient.
    """
    x, rois, batch = node.inputs
    mode = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    options = {
        "sampling_ratio": node.attributes.get_int("sampling_ratio", 0),
        "spatial_scale": node.attributes.get_float("spatial_scale", 1.0),
        "half_pixel": int(mode == "half_pixel"),
    }
    if node.attributes.get_string("mode", "avg") == "max":
        dx = op.RoiAlignMaxGrad(x, rois, batch, dy, **options)
        return dx, op.RoiAlignMaxGradRois(x, rois, batch, dy, **options), None
    dx = op.RoiAlignGrad(rois, batch, dy, op.shape(x), **options)
    return dx, op.RoiAlignGradRois(x, rois, batch, dy, **options), None


@gradient("MaxRoiPool")
def max_roi_pool(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y` is the largest element of each bin:  dx is dy there; corners are rounded: no gradient."""
    x, rois = node.inputs
    scale = node.attributes.get_float("spatial_scale", 1.0)
    return op.MaxRoiPoolGrad(x, rois, dy, spatial_scale=scale), None

"""Gradients of pooling over regions of interest, in standard operators.

The average over a bin's samples is a product with two matrices: rows of `up` give the weight of
each row of the image in each bin, rows of `across` those of the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Tensor, ints
from gradtool.ops.shared.scatter import add_positions
from gradtool.ops.shared.symbolic_sizes import dims
from gradtool.ops.signal.body import number, scalar


def _constant(
    op: Builder, value: float | Sequence[Sequence[int]] | np.ndarray[Any, Any], dtype: ir.DataType
) -> Tensor:
    return op.constant(np.asarray(value, dtype.numpy()))


class _Axis:
    """One axis of all regions: positions and weights of the samples."""

    def __init__(
        self, op: Builder, rois: Tensor, first: int, size: Tensor, bins: int, ratio: int,
        scale: float, half_pixel: int,
    ) -> None:  # fmt: skip
        dtype = rois.dtype
        offset = 0.5 if half_pixel else 0.0
        low, high = (op.Gather(rois, op.constant([i]), axis=1) for i in (first, first + 2))
        self.start = low * scale - offset  # [R, 1]
        extent = (high - low) * scale
        self.free = None if half_pixel else op.cast(op.Greater(extent, 1.0), dtype)
        self.extent = extent if half_pixel else op.Max(extent, 1.0)
        if ratio > 0:
            self.count = _constant(op, [[ratio]], dtype)
            most = op.constant(ratio)
        else:
            self.count = op.Ceil(self.extent / float(bins))
            most = op.cast(op.Max(op.ReduceMax(self.count, keepdims=0), 1.0), ir.DataType.INT64)
        steps = op.cast(op.Range(op.constant(0), most, op.constant(1)), dtype)
        count = op.Unsqueeze(self.count, [2])  # [R, 1, 1]
        used = op.cast(op.Less(steps, count), dtype)
        share = (steps + 0.5) / op.Max(count, 1.0)  # [R, 1, S]
        rows = _constant(op, np.arange(bins)[:, None], dtype)
        self.part = (share + rows) / float(bins)  # [R, bins, S]: the position within the region
        where = op.Unsqueeze(self.start, [2]) + op.Unsqueeze(self.extent, [2]) * self.part
        seen = op.And(op.GreaterOrEqual(where, -1.0), op.LessOrEqual(where, size))
        self.used = used
        self.seen = op.cast(seen, dtype) * used
        self.weight = self.seen / op.Max(count, 1.0)
        last = size - 1.0
        self.inner = op.cast(op.And(op.Greater(where, 0.0), op.Less(where, last)), dtype)
        self.place = op.Min(op.Max(where, 0.0), last)

    def distances(self, op: Builder, length: Tensor) -> Tensor:
        """From each sample to each element: `[R, bins, S, size]`."""
        dtype = self.place.dtype
        elements = op.cast(op.Range(op.constant(0), length, op.constant(1)), dtype)
        return op.Unsqueeze(self.place, [3]) - elements

    def matrix(self, op: Builder, length: Tensor) -> Tensor:
        """The weight of each element in each bin: `[R, bins, size]`."""
        hat = op.Max(1.0 - op.Abs(self.distances(op, length)), 0.0)
        return op.ReduceSum(hat * op.Unsqueeze(self.weight, [3]), [2], keepdims=0)

    def corners(
        self, op: Builder, slope: Tensor, length: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """The gradients of both corners, `[R, 1]` each, from that of the matrix."""
        gap = self.distances(op, length)
        behind = op.And(op.GreaterOrEqual(gap, 0.0), op.Less(gap, 1.0))
        before = op.And(op.Less(gap, 0.0), op.Greater(gap, -1.0))
        dtype = gap.dtype
        hat = op.cast(before, dtype) - op.cast(behind, dtype)
        by_sample = op.ReduceSum(hat * op.Unsqueeze(slope, [2]), [3], keepdims=0)
        return self.ends(op, by_sample * self.weight * self.inner, scale)

    def ends(self, op: Builder, by_sample: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """The gradients of both corners, `[R, 1]` each, from the samples' positions'."""
        start = op.ReduceSum(by_sample, [1, 2], keepdims=0)
        extent = op.ReduceSum(by_sample * self.part, [1, 2], keepdims=0)
        if self.free is not None:
            extent = extent * op.Squeeze(self.free, [1])
        low, high = (start - extent) * scale, extent * scale
        return op.Unsqueeze(low, [1]), op.Unsqueeze(high, [1])


def _axes(
    op: Builder, rois: Tensor, sizes: Sequence[Tensor], bins: Sequence[int], sampling_ratio: int,
    spatial_scale: float, half_pixel: int,
) -> list[tuple[_Axis, Tensor]]:  # fmt: skip
    """The axes of rows and columns, and the lengths of the image along them."""
    made = []
    for first, size, count in zip((1, 0), sizes, bins, strict=True):
        wide = number(op, size, rois.dtype)
        axis = _Axis(op, rois, first, wide, count, sampling_ratio, spatial_scale, half_pixel)
        made.append((axis, size))
    return made


def _sizes(op: Builder, shape: Tensor) -> list[Tensor]:
    """The sizes of the image as scalars, from a shape vector."""
    known = dims(shape)[2:]
    if all(isinstance(n, int) for n in known):
        return [op.constant(n) for n in known]
    return [op.Gather(shape, op.constant(a), axis=0) for a in (2, 3)]


def _like_shape(rois: Tensor, batch: Tensor, dy: Tensor, shape: Tensor) -> Outputs:
    return [(dims(shape), dy.dtype)]


@composite("RoiAlignGrad", shapes=_like_shape)
def roi_align_grad(
    op: Builder, rois: Tensor, batch: Tensor, dy: Tensor, shape: Tensor, *,
    sampling_ratio: int, spatial_scale: float, half_pixel: int,
) -> Tensor:  # fmt: skip
    """`dx[batch[r]] += upᵀ dy[r] across`."""
    lengths = _sizes(op, shape)
    bins = ints(dy.shape)[2:]
    (rows, height), (columns, width) = _axes(
        op, rois, lengths, bins, sampling_ratio, spatial_scale, half_pixel
    )
    up = op.Unsqueeze(rows.matrix(op, height), [1])
    across = op.Unsqueeze(columns.matrix(op, width), [1])
    spread = op.MatMul(op.MatMul(op.Transpose(up, perm=[0, 1, 3, 2]), dy), across)
    images = op.Range(op.constant(0), _first(op, shape), op.constant(1))
    chosen = op.cast(op.Equal(op.Unsqueeze(images, [1]), batch), dy.dtype)  # [B, R]
    return op.Reshape(op.MatMul(chosen, op.Flatten(spread)), shape)


def _first(op: Builder, shape: Tensor) -> Tensor:
    known = dims(shape)[0]
    return scalar(op, known) if isinstance(known, int) else op.Gather(shape, op.constant(0), axis=0)


@composite("RoiAlignGradRois", like=1)
def roi_align_grad_rois(
    op: Builder, x: Tensor, rois: Tensor, batch: Tensor, dy: Tensor, *,
    sampling_ratio: int, spatial_scale: float, half_pixel: int,
) -> Tensor:  # fmt: skip
    """The gradient of up and of across, by way of the positions to the corners."""
    lengths = [scalar(op, n) for n in list(x.shape)[2:]]
    bins = ints(dy.shape)[2:]
    (rows, height), (columns, width) = _axes(
        op, rois, lengths, bins, sampling_ratio, spatial_scale, half_pixel
    )
    up = op.Unsqueeze(rows.matrix(op, height), [1])
    across = op.Unsqueeze(columns.matrix(op, width), [1])
    images = op.Gather(x, batch, axis=0)
    by_rows = op.MatMul(images, op.Transpose(across, perm=[0, 1, 3, 2]))  # [R, C, H, ow]
    by_columns = op.MatMul(up, images)  # [R, C, oh, W]
    slope_up = op.MatMul(dy, op.Transpose(by_rows, perm=[0, 1, 3, 2]))
    slope_across = op.MatMul(op.Transpose(dy, perm=[0, 1, 3, 2]), by_columns)
    slope_up = op.ReduceSum(slope_up, [1], keepdims=0)
    slope_across = op.ReduceSum(slope_across, [1], keepdims=0)
    y1, y2 = rows.corners(op, slope_up, height, spatial_scale)
    x1, x2 = columns.corners(op, slope_across, width, spatial_scale)
    return op.Concat(x1, y1, x2, y2, axis=1)


@composite("MaxRoiPoolGrad", like=0)
def max_roi_pool_grad(
    op: Builder, x: Tensor, rois: Tensor, dy: Tensor, *, spatial_scale: float = 1.0
) -> Tensor:
    """The gradient goes to the first of the largest elements of each bin."""
    bins = ints(dy.shape)[2:]
    masks = []
    for first, size, count in zip((2, 1), list(x.shape)[2:], bins, strict=True):
        low, high = (
            op.Floor(op.Gather(rois, op.constant([i]), axis=1) * spatial_scale + 0.5)
            for i in (first, first + 2)
        )
        length = op.Max(high - low + 1.0, 1.0) / float(count)
        steps = _constant(op, np.arange(count)[None], rois.dtype)
        begin, end = low + op.Floor(steps * length), low + op.Ceil((steps + 1.0) * length)
        elements = op.Range(op.constant(0), scalar(op, size), op.constant(1))
        elements = op.cast(elements, rois.dtype)
        inside = op.And(
            op.GreaterOrEqual(elements, op.Unsqueeze(begin, [2])),
            op.Less(elements, op.Unsqueeze(end, [2])),
        )
        masks.append(inside)  # [R, bins, size]
    rows, columns = op.Unsqueeze(masks[0], [2, 4]), op.Unsqueeze(masks[1], [1, 3])
    inside = op.Unsqueeze(op.And(rows, columns), [1])  # [R, 1, oh, ow, H, W]
    batch = op.cast(op.Gather(rois, op.constant(0), axis=1), ir.DataType.INT64)
    images = op.Unsqueeze(op.Gather(x, batch, axis=0), [2, 3])
    lowest = _constant(op, np.finfo(x.dtype.numpy()).min, x.dtype)
    seen = op.Where(inside, images, lowest)
    lead = op.Concat(op.shape(dy), [-1], axis=0)
    best = op.ArgMax(op.Reshape(seen, lead), axis=4, keepdims=0)  # [R, C, oh, ow]
    some = op.ReduceMax(op.cast(inside, x.dtype), [4, 5], keepdims=0)
    area = op.Mul(scalar(op, x.shape[2]), scalar(op, x.shape[3]))
    planes = op.Mul(op.Unsqueeze(batch, [1]), scalar(op, x.shape[1]))
    planes = planes + op.Range(op.constant(0), scalar(op, x.shape[1]), op.constant(1))
    source = op.Unsqueeze(planes * area, [2, 3]) + best
    return add_positions(op, dy * some, source, op.shape(x))

"""Gradients of RoiAlign's largest weighted corner, in standard operators.

Each sample of a bin offers its four corners, weighted: `x[corner] · weight`. They are counted by
sample, then top before bottom, left before right; the first of the largest takes the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import composite
from gradtool.graph.typed import Tensor, ints
from gradtool.ops.shared.scatter import HALF, add_positions
from gradtool.ops.signal.body import number, scalar
from gradtool.ops.vision.body_rois import _axes, _Axis


class _Corners:
    """Both neighbours of each sample along one axis: `[R, bins, S, 2]`."""

    def __init__(self, op: Builder, axis: _Axis, length: Tensor, others: Sequence[int]) -> None:
        self.axis, self.others = axis, others
        size = number(op, length, axis.place.dtype)
        low = op.Floor(axis.place)
        share = axis.place - low
        weights = [op.Unsqueeze(w * axis.seen, [3]) for w in (1.0 - share, share)]
        self.weight = op.Concat(*weights, axis=3)
        self.used = op.Expand(op.Unsqueeze(axis.used, [3]), op.shape(self.weight))
        places = [op.Unsqueeze(p, [3]) for p in (low, op.Min(low + 1.0, size - 1.0))]
        self.index = op.cast(op.Concat(*places, axis=3), ir.DataType.INT64)

    def spread(self, op: Builder, x: Tensor) -> Tensor:
        """Beside the other axis: `[R, oh, ow, S, S, 2, 2]`."""
        return op.Unsqueeze(x, self.others)

    def ends(self, op: Builder, slope: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """The gradients of both ends of the regions from that of the weights, `[R, 1]` each."""
        own = op.ReduceSum(slope, self.others, keepdims=0)
        rise = op.constant(np.array([-1.0, 1.0], own.dtype.numpy()))
        by_sample = op.ReduceSum(own * rise, [3], keepdims=0) * self.axis.seen * self.axis.inner
        return self.axis.ends(op, by_sample, scale)


class _Largest:
    """The candidates of each bin, K of them, and the first of the largest."""

    def __init__(
        self, op: Builder, x: Tensor, rois: Tensor, batch: Tensor, dy: Tensor, sampling_ratio: int,
        spatial_scale: float, half_pixel: int,
    ) -> None:  # fmt: skip
        channels, *lengths = (scalar(op, n) for n in list(x.shape)[1:])
        bins = ints(dy.shape)[2:]
        axes = _axes(op, rois, lengths, bins, sampling_ratio, spatial_scale, half_pixel)
        free = [2, 4, 6], [1, 3, 5]
        self.rows, self.columns = (
            _Corners(op, axis, length, others)
            for (axis, length), others in zip(axes, free, strict=True)
        )
        weight = self._product(op, "weight")
        self.shape = op.shape(weight)
        self.weight = op.Unsqueeze(self._flat(op, weight), [1])  # [R, 1, oh, ow, K]
        used = op.Unsqueeze(self._flat(op, self._product(op, "used")), [1])
        index = self.rows.spread(op, self.rows.index) * lengths[1]
        index = self._flat(op, index + self.columns.spread(op, self.columns.index))
        planes = op.Unsqueeze(batch, [1]) * channels
        planes = planes + op.Range(op.constant(0), channels, op.constant(1))
        area = op.Mul(lengths[0], lengths[1])
        self.source = op.Unsqueeze(planes * area, [2, 3, 4]) + op.Unsqueeze(index, [1])
        self.found = op.Gather(op.Reshape(x, [-1]), self.source, axis=0)  # [R, C, oh, ow, K]
        lowest = op.constant(np.asarray(np.finfo(x.dtype.numpy()).min, x.dtype.numpy()))
        offered = op.Where(op.Greater(used, 0.0), self.found * self.weight, lowest)
        self.best = op.ArgMax(offered, axis=4, keepdims=1)  # [R, C, oh, ow, 1]

    def _product(self, op: Builder, name: str) -> Tensor:
        return op.Mul(*(c.spread(op, getattr(c, name)) for c in (self.rows, self.columns)))

    def _flat(self, op: Builder, x: Tensor) -> Tensor:
        return op.Reshape(x, [0, 0, 0, -1])


@composite("RoiAlignMaxGrad", like=0)
def roi_align_max_grad(
    op: Builder, x: Tensor, rois: Tensor, batch: Tensor, dy: Tensor, **options: Any
) -> Tensor:
    """`dx[corner] += dy · weight`."""
    largest = _Largest(op, x, rois, batch, dy, **options)
    wide = ir.DataType.FLOAT if dy.dtype in HALF else dy.dtype
    weight = op.Expand(largest.weight, op.shape(largest.source))
    weight = op.Squeeze(op.GatherElements(weight, largest.best, axis=4), [4])
    source = op.GatherElements(largest.source, largest.best, axis=4)
    share = op.cast(dy, wide) * op.cast(weight, wide)
    return op.cast(add_positions(op, share, source, op.shape(x)), x.dtype)


@composite("RoiAlignMaxGradRois", like=1)
def roi_align_max_grad_rois(
    op: Builder, x: Tensor, rois: Tensor, batch: Tensor, dy: Tensor, **options: Any
) -> Tensor:
    """`dweight = Σ_c dy · x[corner]`, by way of the positions to the ends of the regions."""
    largest = _Largest(op, x, rois, batch, dy, **options)
    rows, columns = largest.rows, largest.columns
    count = op.Squeeze(op.size_of(largest.source, 4, 5), [0])
    chosen = op.Equal(largest.best, op.Range(op.constant(0), count, op.constant(1)))
    share = op.Where(chosen, largest.found, 0.0) * op.Unsqueeze(dy, [4])
    slope = op.Reshape(op.ReduceSum(share, [1], keepdims=0), largest.shape)
    y1, y2 = rows.ends(op, slope * columns.spread(op, columns.weight), options["spatial_scale"])
    x1, x2 = columns.ends(op, slope * rows.spread(op, rows.weight), options["spatial_scale"])
    return op.Concat(x1, y1, x2, y2, axis=1)

"""Gradients of RoiAlign's largest weighted corner: the first of the largest takes all."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.index.kernel_accumulate import accumulate
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.sums import accumulator
from gradtool.ops.shared.types import Array, Specs
from gradtool.ops.vision.kernel_rois import corners, ends, regions


class _Axis:
    """Both neighbours of each sample of one axis: `[bins, samples, 2]`."""

    def __init__(self, where: Array, size: int) -> None:
        low, high, share, seen = corners(where, size)
        self.bins, self.count = where.shape
        self.index = np.stack([low, high], axis=2)
        self.weight = np.stack([1 - share, share], axis=2) * seen[..., None]
        free = seen & (where > 0) & (where < size - 1)
        self.slope = np.stack([-1.0 * free, 1.0 * free], axis=2)


def _chosen(xp: Any, x: Array, rows: _Axis, columns: _Axis) -> Array:
    """Index of the first largest candidate of each bin: `[C, oh, ow]`."""
    best, which = None, xp.zeros((x.shape[0], rows.bins, columns.bins), np.int64)
    samples = itertools.product(range(rows.count), range(columns.count), (0, 1), (0, 1))
    for k, (s, t, i, j) in enumerate(samples):
        weight = (rows.weight[:, s, i, None] * columns.weight[:, t, j]).astype(x.dtype)
        index = rows.index[:, s, i, None] * x.shape[2] + columns.index[:, t, j]
        value = x.reshape(x.shape[0], -1).take(xp.asarray(index), axis=1)
        value *= xp.asarray(weight)
        if best is None:
            best = value
        else:
            which[value > best] = k
            xp.maximum(best, value, out=best)
    return which


def _taken(xp: Any, which: Array, rows: _Axis, columns: _Axis) -> tuple[Array, Array]:
    """Flat positions of the chosen corners in the tables of both axes."""
    rest, j = xp.divmod(which, 2)
    rest, i = xp.divmod(rest, 2)
    s, t = xp.divmod(rest, columns.count)
    row = (xp.arange(rows.bins)[:, None] * rows.count + s) * 2 + i
    column = (xp.arange(columns.bins) * columns.count + t) * 2 + j
    return row, column


def _picked(xp: Any, table: Array, places: Array, dtype: Any) -> Array:
    return xp.asarray(table.reshape(-1).astype(dtype)).take(places)


def _bytes(x: Spec, *inputs: Spec, out: Specs) -> int:
    dy = inputs[-1]
    return 14 * 8 * math.prod(dy.shape[1:]) + 2 * out[0].bytes


def _walk(
    xp: Any, x: Array, rois: Array, batch: Array, dy: Array, sampling_ratio: int,
    spatial_scale: float, half_pixel: int,
) -> Iterator[tuple[int, int, _Axis, _Axis, Array, Array]]:  # fmt: skip
    """Each region with samples: its number, image, both axes, and the chosen corners."""
    places = regions(rois, dy.shape[2:], spatial_scale, half_pixel, sampling_ratio)
    for r, (image, where) in enumerate(zip(batch.tolist(), places, strict=True)):
        rows, columns = (_Axis(w, n) for w, n in zip(where, x.shape[2:], strict=True))
        if rows.count and columns.count and x.shape[1]:
            which = _chosen(xp, x[image], rows, columns)
            yield r, image, rows, columns, *_taken(xp, which, rows, columns)


def _source(xp: Any, x: Array, rows: _Axis, columns: _Axis, row: Array, column: Array) -> Array:
    """The flat positions of the chosen corners in their image."""
    planes = xp.arange(x.shape[1])[:, None, None] * (x.shape[2] * x.shape[3])
    row = _picked(xp, rows.index, row, np.int64)
    return planes + row * x.shape[3] + _picked(xp, columns.index, column, np.int64)


@kernel("ai.gradtool::RoiAlignMaxGrad", host=(1, 2), temporaries=_bytes)
def roi_align_max_grad(
    xp: Any, x: Array, rois: Array, batch: Array, dy: Array, **options: Any
) -> Array:
    """`dx[corner] += dy · weight`, in the order of the regions."""
    wide = accumulator(dy.dtype)
    dx = xp.zeros(x.shape, wide)
    for r, image, rows, columns, row, column in _walk(xp, x, rois, batch, dy, **options):
        share = _picked(xp, rows.weight, row, wide) * _picked(xp, columns.weight, column, wide)
        share *= dy[r]
        source = _source(xp, x, rows, columns, row, column)
        accumulate(xp, "add", dx[image].reshape(-1), source.reshape(-1), share.reshape(-1))
    return dx.astype(x.dtype, copy=False)


@kernel("ai.gradtool::RoiAlignMaxGradRois", host=(1, 2), temporaries=_bytes)
def roi_align_max_grad_rois(
    xp: Any, x: Array, rois: Array, batch: Array, dy: Array, **options: Any
) -> Array:
    """Through the weights of the chosen corners and the positions of the samples to the ends."""
    wide = accumulator(x.dtype)
    made = np.zeros(rois.shape)
    scale, half_pixel = options["spatial_scale"], options["half_pixel"]
    for r, image, rows, columns, row, column in _walk(xp, x, rois, batch, dy, **options):
        slope = x[image].reshape(-1).take(_source(xp, x, rows, columns, row, column)).astype(wide)
        slope *= dy[r]
        for a, (own, other) in enumerate(((row, column), (column, row))):
            axis, across = (rows, columns) if a == 0 else (columns, rows)
            by_corner = slope * _picked(xp, across.weight, other, wide)
            by_corner *= _picked(xp, axis.slope, own, wide)
            sums = xp.zeros(axis.bins * axis.count)
            accumulate(xp, "add", sums, own.ravel() // 2, by_corner.ravel())
            sums = sums if xp is np else sums.get()
            by_sample = sums.reshape(axis.bins, axis.count)
            made[r, [1 - a, 3 - a]] = ends(by_sample, rois[r], a, scale, half_pixel)
    return xp.asarray(made.astype(rois.dtype))

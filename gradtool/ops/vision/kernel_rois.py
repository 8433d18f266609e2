"""Pooling of regions of interest: RoiAlign and MaxRoiPool."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.sums import accumulator
from gradtool.ops.shared.types import Array, DType


def positions(start: float, length: float, bins: int, ratio: int) -> Array:
    """Positions of the samples of each bin of one axis: `[bins, samples]`."""
    count = ratio if ratio > 0 else math.ceil(length / bins)
    bin_size = length / bins
    inner = (np.arange(count) + 0.5) * (bin_size / count if count else 0)
    return start + np.arange(bins)[:, None] * bin_size + inner


def corners(where: Array, size: int) -> tuple[Array, ...]:
    """`(low, high, weight of high, seen)` of each sample between the elements of an axis."""
    seen = (where >= -1) & (where <= size)
    inside = np.maximum(where, 0)
    low = np.minimum(inside.astype(np.int64), size - 1)
    high = np.minimum(low + 1, size - 1)
    share = np.where(low >= size - 1, 0, inside - low)
    return low, high, share, seen


def averages(where: Array, size: int) -> Array:
    """The matrix `[bins, size]` that averages the samples of each bin of one axis."""
    low, high, share, seen = corners(where, size)
    bins, count = where.shape
    matrix = np.zeros((bins, size))
    rows = np.broadcast_to(np.arange(bins)[:, None], where.shape)
    np.add.at(matrix, (rows, low), (1 - share) * seen)
    np.add.at(matrix, (rows, high), share * seen)
    return matrix / max(count, 1)


def _averaging(xp: Any, where: Sequence[Array], sizes: Sequence[int], dtype: DType) -> list[Array]:
    """The matrices of both axes."""
    pairs = zip(where, sizes, strict=True)
    return [xp.asarray(averages(w, n).astype(dtype)) for w, n in pairs]


def regions(
    rois: Array, bins: Sequence[int], scale: float, half_pixel: int, ratio: int
) -> Iterator[tuple[Array, Array]]:
    """Sample positions of each region, by axis: rows, then columns."""
    offset = 0.5 if half_pixel else 0.0
    for x1, y1, x2, y2 in np.asarray(rois, dtype=np.float64) * scale - offset:
        extents = y2 - y1, x2 - x1
        if not half_pixel:
            extents = tuple(max(e, 1.0) for e in extents)
        starts = zip((y1, x1), extents, bins, strict=True)
        yield tuple(positions(start, extent, b, ratio) for start, extent, b in starts)


def _align_bytes(x: Spec, **attributes: Any) -> int:
    rows = math.prod(x.shape[1:]) * accumulator(x.dtype).itemsize
    return 12 * rows if attributes.get("mode") == "max" else 2 * rows


@kernel("RoiAlign", host=(1, 2), temporaries=_align_bytes)
def roi_align(
    xp: Any, x: Array, rois: Array, batch_indices: Array, *,
    output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0,
    spatial_scale: float = 1.0, mode: str = "avg",
    coordinate_transformation_mode: str = "half_pixel",
) -> Array:  # fmt: skip
    """Samples between the elements of each region, averaged (or the largest weighted one)."""
    bins = (output_height, output_width)
    half = coordinate_transformation_mode == "half_pixel"
    wide = accumulator(x.dtype)
    y = xp.empty((len(rois), x.shape[1], *bins), x.dtype)
    places = regions(rois, bins, spatial_scale, half, sampling_ratio)
    for made, image, (rows, columns) in zip(y, batch_indices.tolist(), places, strict=True):
        if mode == "max" and not (rows.size and columns.size):
            made[...] = 0
        elif mode == "max":
            made[...] = _largest(xp, x[image], rows, columns)
        else:
            up, across = _averaging(xp, (rows, columns), x.shape[2:], wide)
            made[...] = up @ x[image].astype(wide, copy=False) @ across.T
    return y


def _largest(xp: Any, x: Array, rows: Array, columns: Array) -> Array:
    """The largest of the weighted corners of the samples of each bin."""
    top, bottom, down, seen_rows = corners(rows, x.shape[1])
    left, right, across, seen_columns = corners(columns, x.shape[2])
    best = None
    for i, weight_i in ((top, 1 - down), (bottom, down)):
        for j, weight_j in ((left, 1 - across), (right, across)):
            weight = (weight_i * seen_rows)[:, None, :, None] * (weight_j * seen_columns)[:, None]
            found = x[:, i[:, None, :, None], j[:, None]]
            value = (found * xp.asarray(weight.astype(x.dtype))).max(axis=(3, 4))
            best = value if best is None else xp.maximum(best, value)
    return best


@kernel("MaxRoiPool", host=(1,))
def max_roi_pool(
    xp: Any, x: Array, rois: Array, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0
) -> Array:
    """The largest element of each bin of each region, whose corners are rounded to elements."""
    y = xp.zeros((len(rois), x.shape[1], *pooled_shape), x.dtype)
    for made, (image, *corner) in zip(y, np.asarray(rois, np.float64), strict=True):
        rows, columns = whole_bins(corner, pooled_shape, spatial_scale, x.shape[2:])
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                part = x[int(image), :, row, column]
                if part.size:
                    made[:, i, j] = part.max(axis=(1, 2))
    return y


def whole_bins(
    corner: Sequence[float], bins: Sequence[int], scale: float, sizes: Sequence[int]
) -> list[list[slice]]:
    """The slice of elements of each bin, by axis."""
    x1, y1, x2, y2 = (math.floor(c * scale + 0.5) for c in corner)
    found = []
    for first, last, count, size in zip((y1, x1), (y2, x2), bins, sizes, strict=True):
        length = max(last - first + 1, 1)
        ends = ((b * length // count, -(-(b + 1) * length // count)) for b in range(count))
        found.append([slice(*(min(max(first + e, 0), size) for e in pair)) for pair in ends])
    return found


@kernel("ai.gradtool::RoiAlignGrad", host=(0, 1, 3), temporaries=lambda *, out: 2 * out[0].bytes)
def roi_align_grad(
    xp: Any, rois: Array, batch: Array, dy: Array, shape: Array, *,
    sampling_ratio: int, spatial_scale: float, half_pixel: int,
) -> Array:  # fmt: skip
    """`dx[batch[r]] += upᵀ dy[r] across`, in the order of the regions."""
    wide = accumulator(dy.dtype)
    dx = xp.zeros([int(n) for n in shape], wide)
    places = regions(rois, dy.shape[2:], spatial_scale, half_pixel, sampling_ratio)
    for slope, image, where in zip(dy, batch.tolist(), places, strict=True):
        up, across = _averaging(xp, where, dx.shape[2:], wide)
        dx[image] += up.T @ slope.astype(wide, copy=False) @ across
    return dx.astype(dy.dtype, copy=False)


@kernel("ai.gradtool::RoiAlignGradRois", host=(1, 2), temporaries=lambda x: x.bytes)
def roi_align_grad_rois(
    xp: Any, x: Array, rois: Array, batch: Array, dy: Array, *,
    sampling_ratio: int, spatial_scale: float, half_pixel: int,
) -> Array:  # fmt: skip
    """Through the matrices and the positions of the samples to the corners."""
    wide = accumulator(x.dtype)
    made = np.zeros(rois.shape)
    places = regions(rois, dy.shape[2:], spatial_scale, half_pixel, sampling_ratio)
    for drois, roi, image, slope, where in zip(
        made, np.asarray(rois, np.float64), batch.tolist(), dy, places, strict=True
    ):
        picture, g = x[image].astype(wide, copy=False), slope.astype(wide, copy=False)
        up, across = _averaging(xp, where, x.shape[2:], wide)
        by_rows = (g @ (picture @ across.T).swapaxes(1, 2)).sum(axis=0)
        by_columns = (g.swapaxes(1, 2) @ (up @ picture)).sum(axis=0)
        for axis, part in enumerate((by_rows, by_columns)):
            part = part if xp is np else part.get()  # noqa: PLW2901
            by_sample = _moves(part, where[axis], x.shape[2 + axis])
            drois[[1 - axis, 3 - axis]] = ends(by_sample, roi, axis, spatial_scale, half_pixel)
    return xp.asarray(made.astype(rois.dtype))


def _moves(slope: Array, where: Array, size: int) -> Array:
    """Gradients by the position of each sample, from `[bins, size]`."""
    low, high, _, seen = corners(where, size)
    rows = np.arange(len(where))[:, None]
    free = seen & (where > 0) & (where < size - 1)
    return (slope[rows, high] - slope[rows, low]) * free / max(where.shape[1], 1)


def ends(
    by_sample: Array, roi: Array, axis: int, scale: float, half_pixel: int
) -> tuple[float, float]:
    """Gradients by the start and the end of a region, from the gradients by its samples."""
    bins, count = by_sample.shape
    free = bool(half_pixel) or (roi[3 - axis] - roi[1 - axis]) * scale > 1
    part = (np.arange(bins)[:, None] + (np.arange(count) + 0.5) / max(count, 1)) / bins
    length = (by_sample * part).sum() if free else 0.0
    return (by_sample.sum() - length) * scale, length * scale


@kernel("ai.gradtool::MaxRoiPoolGrad", host=(1,))
def max_roi_pool_grad(
    xp: Any, x: Array, rois: Array, dy: Array, *, spatial_scale: float = 1.0
) -> Array:
    """The gradient goes to the first of the largest elements of each bin."""
    dx = xp.zeros(x.shape, x.dtype)
    channels = xp.arange(x.shape[1])
    for slope, (image, *corner) in zip(dy, np.asarray(rois, np.float64), strict=True):
        rows, columns = whole_bins(corner, dy.shape[2:], spatial_scale, x.shape[2:])
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                part = x[int(image), :, row, column]
                if part.size:
                    best = part.reshape(len(part), -1).argmax(axis=1)
                    r, c = xp.divmod(best, part.shape[2])
                    dx[int(image), channels, row.start + r, column.start + c] += slope[:, i, j]
    return dx

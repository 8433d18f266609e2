"""Images: grids, samples between elements, regions of interest."""

from __future__ import annotations

import math
from typing import Any

from gradtool.ops.costs import cost, counts
from gradtool.ops.shared.element_counts import Results, Shaped, made, result, size

# Taps along an axis, operations of their weights, and of the slopes of these.
TAPS = {"nearest": (1, 1, 0), "linear": (2, 3, 0), "cubic": (4, 28, 14)}
NAMES = {"bilinear": "linear", "bicubic": "cubic"}
# Operations that bring a position back onto an axis; zeros compare every tap with both ends.
INSIDE = {"border": 2, "reflection": 5}


def _weights(points: int, rank: int, mode: str, padding: str) -> int:
    """The weights of all taps of every position: products over the axes."""
    taps, operations, _ = TAPS[mode]
    inside = INSIDE.get(padding, 2 * taps)
    return points * (rank * (operations + inside) + (rank - 1) * _combined(rank, mode))


def _combined(rank: int, mode: str) -> int:
    """Taps of a position: every combination of one per axis."""
    combinations: int = TAPS[mode][0] ** rank
    return combinations


def _summed(points: int, channels: int, rank: int, mode: str) -> int:
    """A multiply-add per tap and channel."""
    return 2 * points * channels * _combined(rank, mode)


@cost("GridSample")
def grid_sample(
    x: Shaped, grid: Shaped, *, mode: str = "linear", padding_mode: str = "zeros"
) -> int:
    """Positions come normalised: `((p + 1) · size - 1) / 2`."""
    rank, mode = grid.shape[-1], NAMES.get(mode, mode)
    points = size(grid) // max(rank, 1)
    weights = 4 * size(grid) + _weights(points, rank, mode, padding_mode)
    return weights + _summed(points, x.shape[1], rank, mode)


@cost("ai.gradtool::Sample")
def sample(x: Shaped, positions: Shaped, *, mode: str, padding: str) -> int:
    """`y[n, c, m] = Σ x[n, c, tap] · weight`."""
    points, rank = math.prod(positions.shape[:2]), positions.shape[2]
    return _weights(points, rank, mode, padding) + _summed(points, x.shape[1], rank, mode)


@cost("ai.gradtool::SampleGradInput")
def sample_grad_input(positions: Shaped, dy: Shaped, *, mode: str, padding: str) -> int:
    """`dx[n, c, tap] += dy[n, c, m] · weight`."""
    return sample(dy, positions, mode=mode, padding=padding)


@cost("ai.gradtool::SampleGradPositions")
def sample_grad_positions(x: Shaped, positions: Shaped, *, mode: str, padding: str) -> int:
    """`Σ_c dy · Σ x · ∂weight / ∂position`: r factors, added, for each tap and axis."""
    points, rank = math.prod(positions.shape[:2]), positions.shape[2]
    slopes = points * rank * (TAPS[mode][2] + _combined(rank, mode) * (rank + 1))
    return slopes + sample(x, positions, mode=mode, padding=padding)


# ------------------------------------------------------------------- regions of interest


def _candidates(regions: int, channels: int, bins: int, ratio: int) -> int | None:
    """Four weighted corners of each sample, compared; None if the regions tell their number."""
    return 8 * regions * channels * bins * ratio * ratio if ratio > 0 else None


@cost("RoiAlign")
def roi_align(
    x: Shaped, rois: Shaped, _: Any, *, out: Results, sampling_ratio: int = 0, mode: str = "avg"
) -> int | None:
    """`up @ x @ acrossᵀ` for each region, with matrices that average the samples of a bin."""
    _, channels, height, width = x.shape
    rows, columns = result(out).shape[2:]
    if mode == "max":
        return _candidates(rois.shape[0], channels, rows * columns, sampling_ratio)
    return 2 * rois.shape[0] * channels * rows * width * (height + columns)


@cost("ai.gradtool::RoiAlignGrad")
def roi_align_grad(_rois: Any, _batch: Any, dy: Shaped, *, out: Results) -> int:
    """`dx[batch[r]] += upᵀ dy[r] across`."""
    regions, channels, rows, columns = dy.shape
    height, width = result(out).shape[2:]
    products = 2 * height * columns * (rows + width)
    return regions * channels * (products + height * width)


@cost("ai.gradtool::RoiAlignGradRois")
def roi_align_grad_rois(x: Shaped, _rois: Any, _batch: Any, dy: Shaped) -> int:
    """`Σ dy (x acrossᵀ)ᵀ` and `Σ dyᵀ (up x)` over channels: the slopes of up and across."""
    regions, channels, rows, columns = dy.shape
    height, width = x.shape[2:]
    by_rows = 2 * height * columns * (width + rows) + rows * height
    by_columns = 2 * rows * width * (height + columns) + columns * width
    return regions * channels * (by_rows + by_columns)


@cost("ai.gradtool::RoiAlignMaxGrad")
def roi_align_max_grad(
    _x: Shaped, _rois: Any, _batch: Any, dy: Shaped, *, sampling_ratio: int
) -> int | None:
    """The largest corner is found again; `dx[corner] += dy · weight`, two factors."""
    return _through_largest(dy, sampling_ratio, 3)


@cost("ai.gradtool::RoiAlignMaxGradRois")
def roi_align_max_grad_rois(
    _x: Shaped, _rois: Any, _batch: Any, dy: Shaped, *, sampling_ratio: int
) -> int | None:
    """`dy · x`, times the weight of one axis and the slope of the other, added: for both axes."""
    return _through_largest(dy, sampling_ratio, 7)


def _through_largest(dy: Shaped, ratio: int, each: int) -> int | None:
    regions, channels, rows, columns = dy.shape
    found = _candidates(regions, channels, rows * columns, ratio)
    return None if found is None else found + each * size(dy)


counts({
    # `grid[n, …] = theta[n] @ (x, y, …, 1)`
    "AffineGrid": lambda theta, *, out: 2 * made(out) * theta.shape[2],
    # `dtheta[n] = Σ dy[n, p] ⊗ (points[p], 1)`
    "ai.gradtool::AffineGridGrad": lambda dy, *, out: 2 * size(dy) * result(out).shape[2],
})  # fmt: skip

"""Suppression of boxes that overlap a box with a higher score."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array


@kernel("NonMaxSuppression", host=(0, 1, 2, 3, 4))
def non_max_suppression(
    xp: Any,
    boxes: Array,
    scores: Array,
    most: Array | None = None,
    overlap: Array | None = None,
    least: Array | None = None,
    *,
    center_point_box: int = 0,
) -> Array:
    """`[batch, class, box]` of the boxes kept, by falling score within each class."""
    most = 0 if most is None else int(np.ravel(most)[0])
    overlap = 0.0 if overlap is None else float(np.ravel(overlap)[0])
    rows = []
    for batch, (corners, by_class) in enumerate(zip(boxes, scores, strict=True)):
        low, high = _corners(corners, center_point_box)
        for label, values in enumerate(by_class):
            order = np.argsort(-values, kind="stable")
            if least is not None:
                order = order[values[order] > np.ravel(least)[0]]
            rows += [(batch, label, box) for box in _kept(low, high, order, most, overlap)]
    return xp.asarray(np.array(rows, dtype=np.int64).reshape(-1, 3))


def _corners(boxes: Array, centred: int) -> tuple[Array, Array]:
    """The least and the greatest corner of each box."""
    if centred:
        middle, half = boxes[:, :2], boxes[:, 2:] / 2
        return middle - half, middle + half
    a, b = boxes[:, :2], boxes[:, 2:]
    return np.minimum(a, b), np.maximum(a, b)


def _kept(low: Array, high: Array, order: Array, most: int, overlap: float) -> list[int]:
    """The boxes that no box kept before them overlaps too much."""
    area = np.prod(high - low, axis=1)
    kept: list[int] = []
    while len(order) and len(kept) < most:
        best, order = order[0], order[1:]
        kept.append(int(best))
        shared = np.minimum(high[best], high[order]) - np.maximum(low[best], low[order])
        common = np.prod(np.maximum(shared, 0), axis=1)
        union = area[best] + area[order] - common
        with np.errstate(all="ignore"):
            ratio = np.where((area[best] > 0) & (area[order] > 0), common / union, 0)
        order = order[~(ratio > overlap)]
    return kept

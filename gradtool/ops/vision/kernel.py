"""Images: grids, samples, regions of interest, boxes, decoding."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from gradtool.errors import UsageError
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.sums import accumulator
from gradtool.ops.shared.types import Array
from gradtool.text.extras import install


def axis_positions(size: int, align_corners: int) -> Array:
    """The normalised positions of the elements of an axis."""
    if align_corners:
        return np.linspace(-1, 1, size) if size > 1 else np.zeros(size) - 1
    return (2 * np.arange(size) + 1) / size - 1


@kernel("AffineGrid", host=(1,), temporaries=lambda *, out: 2 * out[0].bytes)
def affine_grid(xp: Any, theta: Array, size: Array, *, align_corners: int = 0) -> Array:
    """`grid[n, …] = theta[n] @ (x, y, …, 1)`: the last axis comes first."""
    sizes = [int(s) for s in size[2:]]
    wide = accumulator(theta.dtype)
    axes = np.meshgrid(*(axis_positions(s, align_corners) for s in sizes), indexing="ij")
    points = np.stack([*axes[::-1], np.ones(sizes)], axis=-1).reshape(-1, len(sizes) + 1)
    points = xp.asarray(points.astype(wide))
    grid = points @ theta.astype(wide, copy=False).swapaxes(1, 2)
    return grid.reshape(len(theta), *sizes, len(sizes)).astype(theta.dtype, copy=False)


@kernel("ImageDecoder", ahead=False)
def image_decoder(xp: Any, encoded: Array, *, pixel_format: str = "RGB") -> Array:
    """The pixels `[H, W, channels]` of an encoded image; needs Pillow."""
    try:
        from PIL import Image
    except ImportError as error:
        raise UsageError(f"ImageDecoder needs Pillow: {install('image')}") from error
    data = encoded if xp is np else encoded.get()
    image = Image.open(io.BytesIO(data.tobytes()))
    if pixel_format == "Grayscale":
        return xp.asarray(np.array(image.convert("L"))[:, :, None])
    pixels = np.array(image.convert("RGB"))
    return xp.asarray(pixels[:, :, ::-1] if pixel_format == "BGR" else pixels)


@kernel("ai.gradtool::AffineGridGrad", host=(1,), temporaries=lambda dy: 2 * dy.bytes)
def affine_grid_grad(xp: Any, dy: Array, size: Array, *, align_corners: int = 0) -> Array:
    """`dtheta[n] = Σ dy[n, p] ⊗ (points[p], 1)`."""
    sizes = [int(s) for s in size[2:]]
    axes = np.meshgrid(*(axis_positions(s, align_corners) for s in sizes), indexing="ij")
    points = np.stack([*axes[::-1], np.ones(sizes)], axis=-1).reshape(-1, len(sizes) + 1)
    wide = dy.reshape(len(dy), -1, len(sizes)).astype(accumulator(dy.dtype), copy=False)
    return wide.swapaxes(1, 2) @ xp.asarray(points.astype(wide.dtype))


@kernel("NonMaxSuppression", host=(0, 1, 2, 3, 4))
def non_max_suppression(
    xp: Any, boxes: Array, scores: Array, most: Array | None = None, overlap: Array | None = None,
    least: Array | None = None, *, center_point_box: int = 0,
) -> Array:  # fmt: skip
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

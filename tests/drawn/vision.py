"""Sampling of images at positions and regions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from drawn.case import Case, Draw, Given, draws

PARTS = np.array([0.15, 0.2, 0.3, 0.7, 0.8, 0.85])


@draws("AffineGrid")
def affine_grid(d: Draw) -> Case:
    rank = d.int(2, 3)
    batch = d.int(1, 3)
    sizes = [batch, d.int(1, 3), *d.ints(rank, 1, 4)]
    given = d.maybe(align_corners=d.int(0, 1))
    if given.get("align_corners"):
        sizes[2:] = [max(2, n) for n in sizes[2:]]
    theta, dtypes = d.x((batch, rank, rank + 1)), ("float32", "float64")
    return d.case(theta, d.sizes(sizes), opset=(20, 22), dtypes=dtypes, rough=4.0, **given)


@draws("GridSample")
def grid_sample(d: Draw) -> Case:
    """Positions are far from elements, from the middle between them and from where they turn."""
    rank = d.one(1, 2, 2, 2, 3)
    batch, image = d.int(1, 2), [d.size(1, 4) for _ in range(rank)]
    out = [d.size(0, 3) for _ in range(rank)]
    opset = d.one(18, 20, 22)
    if opset < 20 and rank != 2:
        opset = 20
    modes = ["nearest", "bilinear", "bicubic"] if opset < 20 else ["nearest", "linear", "cubic"]
    mode = d.one(*modes) if rank == 2 else d.one(*modes[:2])
    given: dict[str, Any] = d.maybe(
        align_corners=d.int(0, 1), padding_mode=d.one("zeros", "border", "reflection")
    )
    if mode != modes[1] or d.flag():
        given["mode"] = mode
    corners = given.get("align_corners", 0)
    if corners:
        image = [max(2, n) for n in image]
    grid = np.empty((batch, *out, rank))
    for axis, n in enumerate(image):
        pixel = d.rng.integers(-2, n + 1, grid.shape[:-1]) + d.rng.choice(PARTS, grid.shape[:-1])
        last, shift = (n - 1, 0.0) if corners else (n, 0.5)
        grid[..., rank - 1 - axis] = (pixel + shift) * 2 / last - 1
    x = d.x((batch, d.size(0, 2), *image))
    dtypes = ("float32", "float64")
    return d.case(
        x, Given(grid, moved=True), opset=opset, dtypes=dtypes, rough=256.0,
        steps=(1e-3, 1e-4), **given,
    )  # fmt: skip


def _regions(d: Draw, count: int, height: int, width: int, scale: float) -> np.ndarray[Any, Any]:
    made = np.empty((count, 4))
    for row in made:
        x, y = d.rng.uniform(0.1, width - 2), d.rng.uniform(0.1, height - 2)
        row[:] = x, y, x + d.rng.uniform(1.3, width), y + d.rng.uniform(1.3, height)
    return made / scale


@draws("RoiAlign")
def roi_align(d: Draw) -> Case:
    """Of maxima the image only is differentiated, and differences may step over a tie."""
    batch, height, width = d.int(1, 2), d.int(4, 7), d.int(4, 7)
    given: dict[str, Any] = d.maybe(
        output_height=d.int(1, 3), output_width=d.int(1, 3), sampling_ratio=d.int(0, 2),
        coordinate_transformation_mode=d.one("half_pixel", "output_half_pixel"),
        mode=d.one("avg", "max"),
    )  # fmt: skip
    if d.flag(0.3):
        given["spatial_scale"] = 0.5
    count = d.size(0, 3)
    places = _regions(d, count, height, width, given.get("spatial_scale", 1.0))
    x = d.x((batch, d.int(1, 2), height, width), 0.3, 3.0, 0.0, apart=True)
    rois = Given(places, moved=given.get("mode", "avg") == "avg")
    which = d.fixed(d.rng.integers(0, batch, count).astype(np.int64))
    return d.case(
        x, rois, which, opset=(18, 22), dtypes=("float32", "float64"), rough=256.0,
        steps=(1e-4, 1e-5, 1e-6), **given,
    )  # fmt: skip


@draws("MaxRoiPool")
def max_roi_pool(d: Draw) -> Case:
    batch, height, width = d.int(1, 2), d.int(3, 6), d.int(3, 6)
    count = d.size(0, 3)
    rois = np.empty((count, 5))
    for row in rois:
        x, y = d.int(0, width - 1), d.int(0, height - 1)
        row[:] = d.int(0, batch - 1), x, y, x + d.int(0, 3), y + d.int(0, 3)
    given: dict[str, Any] = {"pooled_shape": d.ints(2, 1, 3)}
    if d.flag(0.3):
        given["spatial_scale"] = 0.5
    x = d.x((batch, d.int(1, 2), height, width), apart=True)
    return d.case(x, d.fixed(rois), dtypes=("float32", "float64"), **given)


@draws("DeformConv")
def deform_conv(d: Draw) -> Case:
    """Offsets that keep positions away from elements."""
    group, shared = d.one(1, 1, 2), d.one(1, 1, 2)
    per = d.int(1, 2) if group == 2 or shared == 1 else 2
    channels = group * per if (group * per) % shared == 0 else group * per * shared
    kernel = d.ints(2, 1, 2)
    given: dict[str, Any] = d.maybe(strides=d.ints(2, 1, 2), dilations=d.ints(2, 1, 2))
    if d.flag():
        given["pads"] = d.ints(4, 0, 1)
    if group > 1 or d.flag():
        given["group"] = group
    if shared > 1 or d.flag():
        given["offset_group"] = shared
    strides, dilations = given.get("strides", [1, 1]), given.get("dilations", [1, 1])
    pads = given.get("pads", [0] * 4)
    image, out = [], []
    for a in range(2):
        reach = (kernel[a] - 1) * dilations[a] + 1
        n = reach + d.int(0, 3)
        image.append(n)
        out.append((n + pads[a] + pads[2 + a] - reach) // strides[a] + 1)
    batch, made, taps = d.int(1, 2), group * d.int(1, 2), math.prod(kernel)
    offset = d.rng.choice(PARTS, (batch, shared * taps * 2, *out)) + d.rng.integers(
        -1, 1, (batch, shared * taps * 2, *out)
    )
    bias = d.w((made,)) if d.flag() else None
    mask = d.x((batch, shared * taps, *out)) if d.flag() else None
    x, w = d.x((batch, channels, *image)), d.w((made, channels // group, *kernel))
    return d.case(x, w, Given(offset, moved=True), bias, mask, opset=(19, 22), rough=16.0, **given)

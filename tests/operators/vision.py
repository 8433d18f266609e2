"""Cases of the vision family."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from cases import Floats, case, floats, integers

for corners in (0, 1):
    case("AffineGrid", (2, 2, 3), integers(2, 3, 4, 5), align_corners=corners)
    case("AffineGrid", (1, 3, 4), integers(1, 2, 3, 4, 5), align_corners=corners)


@dataclass(frozen=True)
class Grid(Floats):
    """Normalised positions that are far from elements, from the middle between them, and from
    the borders, some of them outside."""

    sizes: tuple[int, ...] = ()
    align_corners: int = 0

    def draw(self, rng):
        made = np.empty(self.shape)
        for a, size in enumerate(self.sizes):
            whole = rng.integers(-2, size + 1, self.shape[:-1])
            part = rng.choice([0.15, 0.2, 0.3, 0.7, 0.8, 0.85], self.shape[:-1])
            pixel = whole + part
            last = size - 1 if self.align_corners else size
            shift = 0 if self.align_corners else 0.5
            made[..., len(self.sizes) - 1 - a] = (pixel + shift) * 2 / last - 1
        return made


def sampled(x, places, mode, padding, corners, **options):
    rank = len(x) - 2
    grid = Grid((x[0], *places, rank), sizes=x[2:], align_corners=corners)
    case(
        "GridSample", x, grid, mode=mode, padding_mode=padding, align_corners=corners, **options
    )  # fmt: skip


for mode in ("nearest", "linear", "cubic"):
    for padding in ("zeros", "border", "reflection"):
        for corners in (0, 1):
            sampled((2, 3, 4, 6), (3, 5), mode, padding, corners)
for padding in ("zeros", "border", "reflection"):
    sampled((1, 2, 3, 4, 5), (2, 3, 2), "linear", padding, 1)
sampled((2, 3, 5), (7,), "linear", "border", 0, ort=False)  # onnxruntime: images and volumes only
sampled((1, 2, 4, 5), (3, 2), "bilinear", "zeros", 0, opset=18)
sampled((1, 2, 4, 5), (3, 2), "bicubic", "reflection", 0, opset=18)


@dataclass(frozen=True)
class Regions(Floats):
    """Corners of regions of a 10 × 12 image, one of them reaching outside."""

    scale: float = 1.0

    def draw(self, rng):  # noqa: ARG002
        corners = [[1.13, 2.07, 7.31, 6.71], [0.29, 1.37, 4.61, 9.41], [3.83, 0.71, 13.93, 8.17]]
        return np.array(corners)[: self.shape[0]] / self.scale


for mode in ("half_pixel", "output_half_pixel"):
    for ratio in (2, 0):
        case(
            "RoiAlign", (2, 3, 10, 12), Regions((3, 4), scale=0.5), integers(1, 0, 1),
            output_height=3, output_width=2, sampling_ratio=ratio, spatial_scale=0.5,
            coordinate_transformation_mode=mode,
        )  # fmt: skip
case("RoiAlign", (1, 2, 10, 12), Regions((2, 4)), integers(0, 0), output_height=2, output_width=2)


@dataclass(frozen=True)
class Image(Floats):
    """The two largest weighted corners of each bin of these regions are 0.019 apart, at least."""

    def draw(self, rng):  # noqa: ARG002
        return np.random.default_rng(2880).uniform(0.5, 3, self.shape)


for mode in ("half_pixel", "output_half_pixel"):
    for ratio in (2, 0):
        case(
            "RoiAlign", Image((2, 3, 10, 12)), Regions((3, 4), scale=0.5), integers(1, 0, 1),
            mode="max", output_height=3, output_width=2, sampling_ratio=ratio, spatial_scale=0.5,
            coordinate_transformation_mode=mode,
        )  # fmt: skip
case("RoiAlign", (1, 2, 10, 12), Regions((2, 4)), integers(0, 0), mode="max", sampling_ratio=2)


@dataclass(frozen=True)
class Indexed(Floats):
    """An image index and the corners of each region."""

    def draw(self, rng):  # noqa: ARG002
        return np.array([[0, 1, 1, 6, 5], [1, 0, 2, 3, 3], [1, 2.6, 0.2, 9.4, 30]])


for scale in (1.0, 0.5):
    case(
        "MaxRoiPool", floats(2, 3, 8, 9, distinct=True), Indexed((3, 5), fixed=True),
        pooled_shape=[2, 3], spatial_scale=scale,
    )  # fmt: skip

# onnxruntime has no DeformConv.
near = {"low": 0.2, "high": 0.8, "gap": 0.0}
case("DeformConv", (2, 4, 6, 7), (3, 4, 3, 3), floats(2, 18, 4, 5, **near), ort=False)
case(
    "DeformConv", (2, 4, 6, 7), (4, 2, 2, 3), floats(2, 24, 4, 3, **near), (4,),
    (2, 12, 4, 3), group=2, offset_group=2, strides=[2, 2], dilations=[1, 2], pads=[1, 0, 1, 2],
    ort=False,
)  # fmt: skip
case("DeformConv", (1, 2, 5, 5), (2, 2, 2, 2), floats(1, 8, 4, 4, **near), None, (1, 4, 4, 4),
     ort=False)  # fmt: skip

boxes = np.float32([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11]]])
scores = np.float32([[[0.9, 0.75, 0.6, 0.95], [0.1, 0.8, 0.7, 0.2]]])
limits = integers([3]), np.float32([0.5]), np.float32([0.15])
case("NonMaxSuppression", boxes, scores, *limits, gradient=False)
case("NonMaxSuppression", boxes, scores, *limits[:2], gradient=False, center_point_box=1)
case("NonMaxSuppression", boxes, scores, gradient=False)

if find_spec("PIL"):  # onnxruntime has no decoder
    header = struct.pack(
        "<2sIHHIIiiHHIIiiII", b"BM", 70, 0, 0, 54, 40, 2, 2, 1, 24, 0, 16, *[0] * 4
    )
    bitmap = np.frombuffer(header + bytes(range(6)) + b"\0\0" + bytes(range(9, 15)) + b"\0\0", "u1")
    for pixels in ("RGB", "BGR", "Grayscale"):
        case("ImageDecoder", bitmap, gradient=False, ort=False, pixel_format=pixels)

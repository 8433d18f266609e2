"""Convolutions 3 x 3 of stride 1 by F(4x4, 3x3): `y`, `dx` and `dw`, in 36 of 144 products.

Images are `[N, H, W, C]`, weights `[M, C, 3, 3]` as in ONNX.  There are at least 16 channels on
either side.  What is rounded is larger than what is computed: the error, relative to the largest
result, is about ten times that of a direct convolution (a few 1e-6 for y and dx).

Source: Lavin and Gray 2015 (arXiv:1509.09308), section 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradtool.native import SLOTS
from gradtool.native.call import Array, Call, Signature
from gradtool.native.conv import sizes

_SIZES = "batch height width channels out_height out_width out_channels top left"
WINOGRAD = Signature("winograd", "x w bias y work", f"{_SIZES} flipped tiles slots")
WINOGRAD_DW = Signature("winograd_dw", "x dy dw work", f"{_SIZES} tiles slots")
POINTS, PAD = 36, 16
WIDEST = 32  # columns of the widest tile of native/kernels/tiles.h
FEWEST_CHANNELS = 16  # of the widest vector
ROOM, FEWEST = 2 << 20, 32  # bytes of a block of tiles, and its least tiles
DW_ROOM, DW_FEWEST = 4 << 20, 64  # its sums are read and written once a block: larger ones


def _tiles(image: Sequence[int], channels: int, room: int, fewest: int) -> int:
    """Tiles of a block of an image `[N, H, W, …]`: all blocks are about as large."""
    batch, height, width = image[:3]
    every = batch * -(-height // 4) * -(-width // 4)
    most = max(fewest, room // (4 * POINTS * channels))
    blocks = max(1, -(-every // most))
    return -(-every // blocks)


def _planes(rows: int, channels: int, others: int) -> int:
    return POINTS * rows * (channels + others + 2 * PAD)


def work(batch: int, out_height: int, out_width: int, channels: int, out_channels: int) -> int:
    """Bytes of workspace of `forward`; of `gradient_x` with its sizes in place of those of y."""
    both = channels + out_channels
    tiles = _tiles((batch, out_height, out_width), both, ROOM, FEWEST)
    return 4 * (
        _planes(tiles, channels, out_channels) + POINTS * channels * (out_channels + WIDEST)
    )


def gradient_w_work(
    batch: int, out_height: int, out_width: int, channels: int, out_channels: int
) -> int:
    """Bytes of workspace of `gradient_w`."""
    both = channels + out_channels
    tiles = _tiles((batch, out_height, out_width), both, DW_ROOM, DW_FEWEST)
    sums = POINTS * channels * (out_channels + PAD)
    return 4 * (_planes(tiles, channels, out_channels) + sums)


def forward(
    x: Array, w: Array, y: Array, work: Array, *, top: int = 1, left: int = 1,
    bias: Array | None = None, instructions: str | None = None,
) -> Call:  # fmt: skip
    """`y[n, i, j, m] = Σ x[n, i + a - top, j + b - left, c] · w[m, c, a, b] + bias[m]`."""
    return _bind(x, w, y, work, bias, top, left, 0, instructions)


def gradient_x(
    dy: Array, w: Array, dx: Array, work: Array, *, top: int = 1, left: int = 1,
    instructions: str | None = None,
) -> Call:  # fmt: skip
    """`dx` of `forward` with these pads: a convolution of dy by the turned weights."""
    return _bind(dy, w, dx, work, None, 2 - top, 2 - left, 1, instructions)


def gradient_w(
    x: Array, dy: Array, dw: Array, work: Array, *, top: int = 1, left: int = 1,
    instructions: str | None = None,
) -> Call:  # fmt: skip
    """`dw` of `forward` with these pads."""
    both = x.shape[3] + dy.shape[3]
    tiles = _tiles(dy.shape, both, DW_ROOM, DW_FEWEST)
    return WINOGRAD_DW.bind(
        instructions, x=x, dy=dy, dw=dw, work=work, **sizes(x, dy), top=top, left=left, tiles=tiles,
        slots=SLOTS,
    )  # fmt: skip


def _bind(
    x: Array, w: Array, y: Array, work: Array, bias: Array | None, top: int, left: int,
    flipped: int, instructions: str | None,
) -> Call:  # fmt: skip
    tiles = _tiles(y.shape, x.shape[3] + y.shape[3], ROOM, FEWEST)
    return WINOGRAD.bind(
        instructions, x=x, w=w, bias=bias, y=y, work=work, **sizes(x, y), top=top, left=left,
        flipped=flipped, tiles=tiles, slots=SLOTS,
    )  # fmt: skip

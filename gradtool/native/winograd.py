"""Convolutions 3 x 3 of stride 1 by F(4x4, 3x3): `y`, `dx` and `dw`, in 36 of 144 products.

Images are `[N, H, W, C]`, weights `[M, C, 3, 3]` as in ONNX.  There are at least 16 channels on
either side.  Rounded numbers are larger than results.  The largest error of normal numbers and 64
to 512 channels, relative to the largest result: 7e-6 to 2e-5 for y and dx, 2e-6 to 5e-6 for dw (of
norms: 2e-6 to 4e-6, 7e-7 to 2e-6).  A direct convolution has 3e-7 to 2e-6 (2e-7 to 6e-7).

Source: Lavin and Gray 2015 (arXiv:1509.09308), section 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradtool.native.call import Array, Call, Signature
from gradtool.native.conv import sizes

_SIZES = "batch height width channels out_height out_width out_channels top left"
WINOGRAD = Signature("winograd", "x w bias y work", f"{_SIZES} flipped tiles outputs slots")
WINOGRAD_DW = Signature("winograd_dw", "x dy dw work", f"{_SIZES} tiles outputs slots")
POINTS, PAD = 36, 16
WIDEST = 32  # columns of the widest tile of native/kernels/tiles.h
FEWEST_CHANNELS = 16  # of the widest vector
ROOM = 2 << 20  # bytes of a block of tiles, or of outputs


def blocks(image: Sequence[int], channels: int, out_channels: int) -> tuple[int, int]:
    """Tiles and outputs of a block, of an image `[N, H, W, …]` of y: one of them is all there are.

    This minimizes the bytes between the steps; all blocks are about as large.
    """
    batch, height, width = image[:3]
    tiles = batch * -(-height // 4) * -(-width // 4)
    at_once = max(32, ROOM // (4 * POINTS * (channels + out_channels)))
    outputs_at_once = max(WIDEST, ROOM // (4 * POINTS * channels) // WIDEST * WIDEST)
    by_tiles = (_even(tiles, at_once), out_channels)
    by_outputs = (tiles, _even(out_channels, outputs_at_once))
    return min(by_tiles, by_outputs, key=lambda block: _floats(block, channels))


def _even(count: int, at_once: int) -> int:
    """Of a block, of as few as may be, each of about the same size."""
    return -(-count // max(1, -(-count // at_once)))


def _floats(block: tuple[int, int], channels: int) -> int:
    """Transformed tiles, their products, and as much as the weights."""
    tiles, outputs = block
    planes = tiles * (channels + outputs + 2 * PAD)
    return POINTS * (planes + channels * (outputs + WIDEST))


def work(batch: int, out_height: int, out_width: int, channels: int, out_channels: int) -> int:
    """Bytes of workspace of `forward` and `gradient_w`, by the sizes of y.

    Of `gradient_x`, by those of dx: its channels are the outputs.
    """
    block = blocks((batch, out_height, out_width), channels, out_channels)
    return 4 * _floats(block, channels)


def forward(
    x: Array, w: Array, y: Array, work: Array, *, top: int = 1, left: int = 1,
    bias: Array | None = None,
) -> Call:  # fmt: skip
    """`y[n, i, j, m] = Σ x[n, i + a - top, j + b - left, c] · w[m, c, a, b] + bias[m]`."""
    return _bind(x, w, y, work, bias, top, left, 0)


def gradient_x(dy: Array, w: Array, dx: Array, work: Array, *, top: int = 1, left: int = 1) -> Call:
    """`dx` of `forward` with these pads: a convolution of dy by the turned weights."""
    return _bind(dy, w, dx, work, None, 2 - top, 2 - left, 1)


def gradient_w(x: Array, dy: Array, dw: Array, work: Array, *, top: int = 1, left: int = 1) -> Call:
    """`dw` of `forward` with these pads."""
    tiles, outputs = blocks(dy.shape, x.shape[3], dy.shape[3])
    return WINOGRAD_DW.bind(
        x=x, dy=dy, dw=dw, work=work, **_checked(x, dy), top=top, left=left, tiles=tiles,
        outputs=outputs,
    )  # fmt: skip


def _checked(x: Array, y: Array) -> dict[str, int]:
    found = sizes(x, y)
    if min(found["channels"], found["out_channels"]) < FEWEST_CHANNELS:
        raise ValueError(f"Winograd takes {FEWEST_CHANNELS} channels or more on either side")
    return found


def _bind(
    x: Array, w: Array, y: Array, work: Array, bias: Array | None, top: int, left: int, flipped: int
) -> Call:
    tiles, outputs = blocks(y.shape, x.shape[3], y.shape[3])
    return WINOGRAD.bind(
        x=x, w=w, bias=bias, y=y, work=work, **_checked(x, y), top=top, left=left, flipped=flipped,
        tiles=tiles, outputs=outputs,
    )  # fmt: skip

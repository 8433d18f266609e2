"""Max and average pooling, channels last; global pooling is that of a window as large as the image.

Images are `[N, H, W, C]`; no workspace.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradtool.native.call import Array, Call, Signature

_POINTERS = "x y places"
_SIZES = (
    "batch height width channels out_height out_width kernel_height kernel_width stride_y stride_x "
    "dilation_y dilation_x top left bottom right padded bytes slots"
)
MAX = Signature("max_pool", _POINTERS, _SIZES)
MAX_DX = Signature("max_pool_dx", _POINTERS, _SIZES)
SCATTER = Signature("scatter_places", "dy places dx", "images pixels windows channels bytes slots")
AVERAGE = Signature("average_pool", _POINTERS, _SIZES)
AVERAGE_DX = Signature("average_pool_dx", _POINTERS, _SIZES)


@dataclass(frozen=True)
class Window:
    """Attributes of a pool; `pads` are top, left, bottom and right; `padded` counts them, too."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    padded: bool = False


def max_pool(x: Array, y: Array | None, places: Array | None, window: Window) -> Call:
    """The largest of each window, and its place in its plane of x: the first, or the last NaN.

    Either may be left out.  Places are uint8, uint16 or int32, and have to fit.
    """
    return _bind(MAX, x, y, places, window)


def max_pool_gradient(dy: Array, places: Array, dx: Array, window: Window) -> Call:
    """`dx` of `max_pool`, from its result `places`."""
    return _bind(MAX_DX, dx, dy, places, window)


def average_pool(x: Array, y: Array, window: Window) -> Call:
    """The average of each window."""
    return _bind(AVERAGE, x, y, None, window)


def average_pool_gradient(dy: Array, dx: Array, window: Window) -> Call:
    """`dx` of `average_pool`."""
    return _bind(AVERAGE_DX, dx, dy, None, window)


def _bind(
    signature: Signature, x: Array, y: Array | None, places: Array | None, window: Window
) -> Call:
    result = places if y is None else y
    assert result is not None  # noqa: S101 - something is asked for
    if places is not None and places.dtype not in (np.uint8, np.uint16, np.int32):
        raise TypeError(f"places of {places.dtype}: uint8, uint16 and int32 are known")
    batch, height, width, channels = x.shape
    top, left, bottom, right = window.pads
    return signature.bind(
        x=x, y=y, places=places, batch=batch, height=height, width=width, channels=channels,
        out_height=result.shape[1], out_width=result.shape[2], kernel_height=window.kernel[0],
        kernel_width=window.kernel[1], stride_y=window.strides[0], stride_x=window.strides[1],
        dilation_y=window.dilations[0], dilation_x=window.dilations[1], top=top, left=left,
        bottom=bottom, right=right, padded=int(window.padded),
        bytes=4 if places is None else places.itemsize,
    )  # fmt: skip


def scatter(dy: Array, places: Array, dx: Array) -> Call:
    """`dx` of any max pooling: dy added at the places (uint8 or uint16) of the maxima."""
    images, height, width, channels = dx.shape
    return SCATTER.bind(
        dy=dy, places=places, dx=dx, images=images, pixels=height * width,
        windows=dy.shape[1] * dy.shape[2], channels=channels, bytes=places.itemsize,
    )  # fmt: skip

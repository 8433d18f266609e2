"""Convolutions of any kernel, stride, dilation and group, channels last: `y`, `dx` and `dw`.

Images are `[N, H, W, C]`, weights `[M, C/G, a, b]` as in ONNX; pads are those at the top and at the
left, the others follow from the sizes of y.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradtool.native import slots
from gradtool.native.call import Array, Call, Signature
from gradtool.native.gemm import product_floats

_SIZES = (
    "batch height width channels out_height out_width out_channels kernel_height kernel_width "
    "stride_y stride_x dilation_y dilation_x top left group"
)
CONV = Signature("conv", "x w bias y work", f"{_SIZES} backward slots")
CONV_DW = Signature("conv_dw", "x dy dw work", f"{_SIZES} slots")
PIXELS, DEPTH = 84, 384  # of native/kernels/conv.c
DW_PIXELS, DW_COLUMNS = 128, 128  # of native/kernels/conv_dw.c
WIDEST, PAD = 32, 16
MERGED = 32  # channels of groups that are computed as one, of native/kernels/conv.h


@dataclass(frozen=True)
class Window:
    """Attributes of a convolution, each of rows and columns; `pads` at the top and at the left.

    One that is `exact` is computed as a sum of products.
    """

    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)
    group: int = 1
    exact: bool = False

    def words(self, w: Sequence[int]) -> dict[str, int]:
        """The words of a call from these, and from the weights' shape."""
        return {
            "kernel_height": w[2], "kernel_width": w[3],
            "stride_y": self.strides[0], "stride_x": self.strides[1],
            "dilation_y": self.dilations[0], "dilation_x": self.dilations[1],
            "top": self.pads[0], "left": self.pads[1], "group": self.group,
        }  # fmt: skip


def _merged(group: int, inputs: int, outputs: int) -> int:
    """As many narrow groups are computed as one: a divisor of their number."""
    widest = max(1, MERGED // max(1, inputs, outputs))
    return max(many for many in range(1, min(group, widest) + 1) if group % many == 0)


def _is_product(x: Sequence[int], w: Sequence[int], y: Sequence[int], window: Window) -> bool:
    """A 1 x 1 kernel that reads each pixel once: one product of matrices."""
    one = w[2] * w[3] * window.group * window.strides[0] * window.strides[1] == 1
    return one and window.pads == (0, 0) and tuple(x[:3]) == tuple(y[:3])


def _slots(w: Sequence[int], y: Sequence[int]) -> int:
    """Of the sum of products of any of the three, of w `[M, C/G, kH, kW]` and y `[N, H, W, M]`."""
    return slots(math.prod(y) * math.prod(w[1:]))


def work(
    x: Sequence[int], w: Sequence[int], y: Sequence[int], window: Window, *, backward: bool = False
) -> int:
    """Bytes of workspace of `forward`, or of `gradient_x`, of shapes of x, w and y."""
    source, target = (y, x) if backward else (x, y)
    merged = _merged(window.group, x[3] // window.group, y[3] // window.group)
    groups = window.group // merged
    sources, targets = source[3] // groups, target[3] // groups
    taps = w[2] * w[3]
    if _is_product(x, w, y, window):
        return 4 * product_floats(x[0] * x[1] * x[2], target[3], source[3])
    deepest = min(taps, max(1, DEPTH // max(1, sources))) * sources + PAD
    spread = targets + PAD if backward and max(window.strides) > 1 else 0
    lines = _slots(w, y) * PIXELS * (deepest + spread)
    return 4 * (lines + groups * taps * sources * (targets + WIDEST))


def gradient_w_work(x: Sequence[int], w: Sequence[int], y: Sequence[int], window: Window) -> int:
    """Bytes of workspace of `gradient_w`."""
    taps, inputs = w[2] * w[3], w[1]
    if _is_product(x, w, y, window):
        return 4 * product_floats(w[0], inputs, x[0] * x[1] * x[2])
    inputs *= _merged(window.group, inputs, w[0] // window.group)
    columns = min(taps, DW_COLUMNS // inputs) * inputs if inputs <= DW_COLUMNS else DW_COLUMNS
    columns = max(columns, w[3] * inputs)
    return 4 * (w[0] * taps * inputs + _slots(w, y) * DW_PIXELS * (columns + PAD) + PAD)


def forward(
    x: Array, w: Array, y: Array, work: Array, window: Window, *, bias: Array | None = None
) -> Call:
    """`y[n, i, j, m] = Σ x[n, i · s + a · d - top, …, c] · w[m, c, a, b] + bias[m]`."""
    return CONV.bind(
        x=x, w=w, bias=bias, y=y, work=work, **sizes(x, y), **window.words(w.shape), backward=0,
        slots=_slots(w.shape, y.shape),
    )  # fmt: skip


def gradient_x(dy: Array, w: Array, dx: Array, work: Array, window: Window) -> Call:
    """`dx` of `forward`."""
    return CONV.bind(
        x=dy, w=w, bias=None, y=dx, work=work, **sizes(dy, dx), **window.words(w.shape), backward=1,
        slots=_slots(w.shape, dy.shape),
    )  # fmt: skip


def gradient_w(x: Array, dy: Array, dw: Array, work: Array, window: Window) -> Call:
    """`dw` of `forward`."""
    return CONV_DW.bind(
        x=x, dy=dy, dw=dw, work=work, **sizes(x, dy), **window.words(dw.shape),
        slots=_slots(dw.shape, dy.shape),
    )  # fmt: skip


def sizes(x: Array, y: Array) -> dict[str, int]:
    """Words for the shapes of two images."""
    names = ("batch", "height", "width", "channels")
    others = ("out_height", "out_width", "out_channels")
    return dict(zip(names, x.shape, strict=True)) | dict(zip(others, y.shape[1:], strict=True))

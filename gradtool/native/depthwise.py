"""Depthwise convolutions, channels last: as many groups and outputs as channels."""

from __future__ import annotations

from collections.abc import Sequence

from gradtool.native.call import Array, Call, Signature
from gradtool.native.conv import CONV, CONV_DW, Window, sizes

DEPTHWISE = Signature("depthwise", CONV.pointers, CONV.sizes)
DEPTHWISE_DW = Signature("depthwise_dw", CONV_DW.pointers, CONV_DW.sizes)


def work(w: Sequence[int]) -> int:
    """Bytes of workspace of each of the three, by the shape of the weights `[C, 1, a, b]`."""
    return 4 * w[0] * w[2] * w[3]


def forward(
    x: Array, w: Array, y: Array, work: Array, window: Window, *, bias: Array | None = None
) -> Call:
    """`y[n, i, j, c] = Σ x[n, i · s + a · d - top, …, c] · w[c, 0, a, b] + bias[c]`."""
    return DEPTHWISE.bind(
        x=x, w=w, bias=bias, y=y, work=work, **sizes(x, y), **window.words(w.shape), backward=0
    )


def gradient_x(dy: Array, w: Array, dx: Array, work: Array, window: Window) -> Call:
    """`dx` of `forward`."""
    return DEPTHWISE.bind(
        x=dy, w=w, bias=None, y=dx, work=work, **sizes(dy, dx), **window.words(w.shape), backward=1
    )


def gradient_w(x: Array, dy: Array, dw: Array, work: Array, window: Window) -> Call:
    """`dw` of `forward`."""
    return DEPTHWISE_DW.bind(x=x, dy=dy, dw=dw, work=work, **sizes(x, dy), **window.words(dw.shape))

"""Choice of the native kernel of a convolution: by shapes alone, so the same everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gradtool.native.conv import Window
from gradtool.native.winograd import FEWEST_CHANNELS

Algorithm = Literal["winograd", "depthwise", "direct"]


def algorithm(w: Sequence[int], window: Window) -> Algorithm:
    """Of weights `[M, C/G, a, b]`: the module of this package that computes y, dx and dw."""
    outputs, inputs, *kernel = w
    if inputs == 1 and outputs == window.group > 1:
        return "depthwise"
    plain = window.group == 1 and window.strides == (1, 1) and window.dilations == (1, 1)
    if plain and not window.exact and kernel == [3, 3] and min(inputs, outputs) >= FEWEST_CHANNELS:
        return "winograd"
    return "direct"

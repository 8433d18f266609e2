"""Pooling: one operation per tap of each window, padding included."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradtool.ops.costs import cost, counts, each, free
from gradtool.ops.shared.element_counts import Results, Shaped, made, size

free(("MaxUnpool",))
each({
    "GlobalAveragePool": (1, 1),
    "GlobalMaxPool": (1, 0),
    "ai.gradtool::MaxPoolGrad": (1, 0),  # dy added at the places of the maxima
})  # fmt: skip


@cost("MaxPool", "ai.gradtool::MaxPoolTraining")
def max_pool(*, out: Results, kernel_shape: Sequence[int]) -> int:
    """The greatest element of each window."""
    return made(out) * math.prod(kernel_shape)


@cost("ai.gradtool::AveragePoolGrad")
def average_pool_grad(dy: Shaped, *, kernel_shape: Sequence[int]) -> int:
    """A division and as many additions as the window has taps, for each element of dy."""
    return size(dy) * (math.prod(kernel_shape) + 1)


def _power(p: int) -> int:
    """Operations of `|x|^p`: a square needs no absolute value."""
    return 1 if p in (1, 2) else 2


@cost("LpPool")
def lp_pool(x: Shaped, *, out: Results, kernel_shape: Sequence[int], p: int = 2) -> int:
    """`y = (Σ |x|^p)^(1/p)` over each window."""
    return _power(p) * size(x) + made(out) * (math.prod(kernel_shape) + (p != 1))


def _slopes(x: Shaped, dy: Shaped, p: int) -> int:
    """`sign x · |x|^(p - 1)` times the sum of `dy · y^(1 - p)`, where y is not 0."""
    slope = {1: 1, 2: 0}.get(p, 3)
    share = 1 if p == 1 else 2
    return (slope + 1) * size(x) + (share + 1) * size(dy)


@cost("ai.gradtool::LpPoolGrad")
def lp_pool_grad(x: Shaped, _: Shaped, dy: Shaped, *, p: int, kernel_shape: Sequence[int]) -> int:
    """`dx = sign x · |x|^(p - 1) · Σ dy · y^(1 - p)` over the windows with x."""
    return _slopes(x, dy, p) + size(dy) * math.prod(kernel_shape)


counts({
    # A sum and a division per window
    "AveragePool": lambda *, out, kernel_shape: made(out) * (math.prod(kernel_shape) + 1),
    # `y = (Σ |x|^p)^(1/p)` over each plane
    "GlobalLpPool": lambda x, *, out, p=2: (_power(p) + 1) * size(x) + made(out) * (p != 1),
    # `dx = sign x · |x|^(p - 1) · dy · y^(1 - p)`
    "ai.gradtool::GlobalLpPoolGrad": lambda x, _, dy, *, p: _slopes(x, dy, p),
})  # fmt: skip

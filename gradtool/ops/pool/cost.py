"""Pooling: one operation per tap of each window, padding included."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradtool.ops.costs import cost, free
from gradtool.ops.shared.element_counts import Results, Shaped, made, size

free(("MaxUnpool",))


@cost("MaxPool", "ai.gradtool::MaxPoolTraining")
def max_pool(*, out: Results, kernel_shape: Sequence[int]) -> int:
    """The greatest element of each window."""
    return made(out) * math.prod(kernel_shape)


@cost("AveragePool")
def average_pool(*, out: Results, kernel_shape: Sequence[int]) -> int:
    """A sum and a division per window."""
    return made(out) * (math.prod(kernel_shape) + 1)


@cost("ai.gradtool::AveragePoolGrad")
def average_pool_grad(dy: Shaped, *, kernel_shape: Sequence[int]) -> int:
    """A division and as many additions as the window has taps, for each element of dy."""
    return size(dy) * (math.prod(kernel_shape) + 1)


@cost("ai.gradtool::MaxPoolGrad")
def max_pool_grad(dy: Shaped) -> int:
    """Dy added at the places of the maxima."""
    return size(dy)


@cost("GlobalMaxPool")
def global_max_pool(x: Shaped) -> int:
    """The greatest element of each plane."""
    return size(x)


@cost("GlobalAveragePool")
def global_average_pool(x: Shaped, *, out: Results) -> int:
    """The mean of each plane."""
    return size(x) + made(out)


def _power(p: int) -> int:
    """Operations of `|x|^p`: a square needs no absolute value."""
    return 1 if p in (1, 2) else 2


@cost("LpPool")
def lp_pool(x: Shaped, *, out: Results, kernel_shape: Sequence[int], p: int = 2) -> int:
    """`y = (Σ |x|^p)^(1/p)` over each window."""
    return _power(p) * size(x) + made(out) * (math.prod(kernel_shape) + (p != 1))


@cost("GlobalLpPool")
def global_lp_pool(x: Shaped, *, out: Results, p: int = 2) -> int:
    """`y = (Σ |x|^p)^(1/p)` over each plane."""
    return (_power(p) + 1) * size(x) + made(out) * (p != 1)


def _slopes(x: Shaped, dy: Shaped, p: int) -> int:
    """`sign x · |x|^(p - 1)` times the sum of `dy · y^(1 - p)`, where y is not 0."""
    slope = {1: 1, 2: 0}.get(p, 3)
    share = 1 if p == 1 else 2
    return (slope + 1) * size(x) + (share + 1) * size(dy)


@cost("ai.gradtool::LpPoolGrad")
def lp_pool_grad(x: Shaped, _: Shaped, dy: Shaped, *, p: int, kernel_shape: Sequence[int]) -> int:
    """`dx = sign x · |x|^(p - 1) · Σ dy · y^(1 - p)` over the windows with x."""
    return _slopes(x, dy, p) + size(dy) * math.prod(kernel_shape)


@cost("ai.gradtool::GlobalLpPoolGrad")
def global_lp_pool_grad(x: Shaped, _: Shaped, dy: Shaped, *, p: int) -> int:
    """`dx = sign x · |x|^(p - 1) · dy · y^(1 - p)`."""
    return _slopes(x, dy, p)

"""Taps of interpolation: elements of an axis around positions between them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradtool.ops.shared.types import Array, Arrays

POINTS, MOST = 256, 4096  # positions at a time: what they need stays in the first-level cache
CUBIC = -0.75
SPANS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
MODES = {"bilinear": "linear", "bicubic": "cubic"}


def bounds(size: int, align_corners: int) -> tuple[float, float]:
    """The outermost positions of an axis."""
    return (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)


def reflect(xp: Any, x: Array, low: float, high: float) -> tuple[Array, Array]:
    """`x` folded back at `low` and `high` as often as it takes; and the sign of its slope."""
    extent = high - low
    if extent <= 0:
        return xp.zeros_like(x) + low, xp.zeros_like(x)
    away = xp.where(x < low, low - x, xp.where(x > high, x - high, 0))
    turns = xp.floor(away / extent)
    rest = away - turns * extent
    odd = turns % 2 == 1
    below = xp.where(odd, high - rest, low + rest)
    above = xp.where(odd, low + rest, high - rest)
    folded = xp.where(x < low, below, xp.where(x > high, above, x))
    return folded, xp.where(away > 0, xp.where(odd, 1.0, -1.0), 1.0)


def taps(
    xp: Any, x: Array, size: int, mode: str, padding: str, align_corners: int
) -> list[tuple[Array, Array, Array]]:
    """`(index, weight, slope)` of each tap of positions `x`; weight 0 outside, if so padded.

    The slope is the derivative of the weight by the position. Beyond a border, cubic taps are
    moved one by one, as in PyTorch and onnxruntime; else the position is.
    """
    low, high = bounds(size, align_corners)
    inner = 1.0
    if mode == "nearest":
        x = xp.rint(x)
    if padding == "border" and mode != "cubic":
        inner = xp.where((x < low) | (x > high), 0.0, 1.0)
        x = xp.where(inner == 0, xp.clip(x, 0, size - 1), x)
    elif padding == "reflection":
        x, inner = reflect(xp, x, low, high)
    first = x if mode == "nearest" else xp.floor(x)
    found = []
    for span, (weight, slope) in zip(SPANS[mode], _weights(xp, x - first, mode), strict=True):
        index = first + span
        if padding == "zeros":
            seen = (index >= 0) & (index < size)
            weight, slope = weight * seen, slope * seen  # noqa: PLW2901
        elif padding == "reflection":
            index, _ = reflect(xp, index, low, high)
        index = xp.clip(xp.nan_to_num(index), 0, size - 1).astype(np.int64)
        found.append((index, weight, slope * inner))
    return found


def _weights(xp: Any, t: Array, mode: str) -> list[tuple[Array, Array]]:
    """Weight and derivative of each tap at distance `t` behind the first one."""
    one = xp.ones_like(t)
    if mode == "nearest":
        return [(one, 0 * one)]
    if mode == "linear":
        return [(1 - t, -one), (t, one)]
    outer = [(t + 1, 1), (2 - t, -1)]
    inner = [(t, 1), (1 - t, -1)]
    a = CUBIC
    far = [
        (((a * s - 5 * a) * s + 8 * a) * s - 4 * a, sign * ((3 * a * s - 10 * a) * s + 8 * a))
        for s, sign in outer
    ]
    near = [
        (((a + 2) * s - (a + 3)) * s * s + 1, sign * (3 * (a + 2) * s - 2 * (a + 3)) * s)
        for s, sign in inner
    ]
    return [far[0], near[0], near[1], far[1]]


def combined(
    xp: Any, axes: Sequence[Sequence[Arrays]], sizes: Sequence[int]
) -> Iterator[tuple[Array, Array, list[Array]]]:
    """`(flat index, weight, slope per axis)` of every combination of one tap per axis."""
    steps = [math.prod(sizes[a + 1 :]) for a in range(len(sizes))]
    for chosen in itertools.product(*axes):
        flat = sum(index * step for (index, _, _), step in zip(chosen, steps, strict=True))
        weights = [weight for _, weight, _ in chosen]
        slopes = [
            math.prod([slope, *weights[:a], *weights[a + 1 :]])
            for a, (_, _, slope) in enumerate(chosen)
        ]
        yield flat, math.prod(weights), slopes

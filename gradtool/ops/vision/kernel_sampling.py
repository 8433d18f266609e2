"""Interpolation at given positions: GridSample, and the composites that differentiate it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.ops.index.kernel_accumulate import accumulate_planes
from gradtool.ops.kernels import Function, kernel
from gradtool.ops.shared.select import take
from gradtool.ops.shared.types import Array, Arrays, Specs
from gradtool.ops.shared.upcast import widened

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


def _room(x: Spec, points: int) -> Spec:
    return Spec((x.shape[1] * min(at_a_time(POINTS, MOST), points),), x.dtype)


def pieces(points: int) -> Iterator[Any]:
    """The positions, a block at a time."""
    size = at_a_time(POINTS, MOST)
    return (slice(start, min(start + size, points)) for start in range(0, points, size))


def pixels(xp: Any, grid: Array, sizes: Sequence[int], align_corners: int) -> Iterator[Array]:
    """Positions in elements from normalised ones, which name the last axis first."""
    for a, size in enumerate(sizes):
        p = grid[..., len(sizes) - 1 - a]
        yield (p + 1) / 2 * (size - 1) if align_corners else ((p + 1) * size - 1) / 2


def _flat(x: Array) -> Array:
    """`[C, L]` of `[C, …]`, also where there is no channel."""
    return x.reshape(len(x), math.prod(x.shape[1:]))


def interpolate(
    xp: Any,
    x: Array,
    positions: Arrays,
    y: Array,
    room: Array,
    options: tuple[Sequence[int], str, str, int],
) -> None:
    """`y[C, P]` is `x[C, L]` at the positions, one array per axis."""
    sizes, mode, padding, align_corners = options
    axes = [
        taps(xp, p, size, mode, padding, align_corners)
        for p, size in zip(positions, sizes, strict=True)
    ]
    y.fill(0)
    part = room[: y.size].reshape(y.shape)
    for flat, weight, _ in combined(xp, axes, sizes):
        take(xp, x, flat, axis=1, out=part)
        xp.multiply(part, weight.astype(part.dtype, copy=False), out=part)
        y += part


def _grid_work(x: Spec, grid: Spec, *, out: Specs, **attributes: Any) -> list[Spec]:
    return [_room(x, math.prod(grid.shape[1:-1]))]


def _grid_sample(
    xp: Any, x: Array, grid: Array, *, out: Arrays, work: Arrays, mode: str = "linear",
    padding_mode: str = "zeros", align_corners: int = 0,
) -> None:  # fmt: skip
    """`y[n, c, …]` is `x[n, c]` at the normalised position `grid[n, …]`."""
    sizes = x.shape[2:]
    options = (sizes, MODES.get(mode, mode), padding_mode, align_corners)
    for image, points, y in zip(x, grid, out[0], strict=True):
        image = _flat(image)  # noqa: PLW2901
        points = points.reshape(-1, len(sizes))  # noqa: PLW2901
        y = _flat(y)  # noqa: PLW2901
        for piece in pieces(len(points)):
            where = list(pixels(xp, points[piece], sizes, align_corners))
            interpolate(xp, image, where, y[:, piece], work[0], options)


def _sample_work(x: Spec, positions: Spec, *, out: Specs, **attributes: Any) -> list[Spec]:
    return [_room(x, positions.shape[1])]


def _sample(
    xp: Any, x: Array, positions: Array, *,
    out: Arrays, work: Arrays, mode: str, padding: str, align_corners: int,
) -> None:  # fmt: skip
    """`y[n, c, m]` is `x[n, c]` at `positions[n, m]`, in elements, axis by axis."""
    options = (x.shape[2:], mode, padding, align_corners)
    for image, points, y in zip(x, positions, out[0], strict=True):
        image = _flat(image)  # noqa: PLW2901
        for piece in pieces(len(points)):
            interpolate(xp, image, list(points[piece].T), y[:, piece], work[0], options)


def _input_work(positions: Spec, dy: Spec) -> list[Spec]:
    return [_room(dy, positions.shape[1])]


def _sample_grad_input(
    xp: Any, positions: Array, dy: Array, shape: Array, *,
    out: Arrays, work: Arrays, mode: str, padding: str, align_corners: int,
) -> None:  # fmt: skip
    """`dy` times the weights, added where it was read, in order of reading."""
    sizes = out[0].shape[2:]
    out[0].fill(0)
    for dx, points, slope in zip(out[0], positions, dy, strict=True):
        dx = _flat(dx)  # noqa: PLW2901
        for piece in pieces(len(points)):
            axes = [
                taps(xp, p, size, mode, padding, align_corners)
                for p, size in zip(points[piece].T, sizes, strict=True)
            ]
            part = work[0][: slope[:, piece].size].reshape(slope[:, piece].shape)
            for flat, weight, _ in combined(xp, axes, sizes):
                xp.multiply(slope[:, piece], weight.astype(part.dtype, copy=False), out=part)
                accumulate_planes(xp, "add", dx[:, :, None], flat, part[:, :, None])


def _positions_work(
    x: Spec, positions: Spec, dy: Spec, *, out: Specs, **attributes: Any
) -> list[Spec]:
    return [_room(x, positions.shape[1])]


def _sample_grad_positions(
    xp: Any, x: Array, positions: Array, dy: Array, *,
    out: Arrays, work: Arrays, mode: str, padding: str, align_corners: int,
) -> None:  # fmt: skip
    """`Σ_c dy · Σ x · ∂weight/∂position`, per axis."""
    sizes = x.shape[2:]
    out[0].fill(0)
    for image, points, slope, made in zip(x, positions, dy, out[0], strict=True):
        image = _flat(image)  # noqa: PLW2901
        for piece in pieces(len(points)):
            axes = [
                taps(xp, p, size, mode, padding, align_corners)
                for p, size in zip(points[piece].T, sizes, strict=True)
            ]
            part = work[0][: slope[:, piece].size].reshape(slope[:, piece].shape)
            for flat, _, slopes in combined(xp, axes, sizes):
                take(xp, image, flat, axis=1, out=part)
                xp.multiply(part, slope[:, piece], out=part)
                total = part.sum(axis=0)
                for a, factor in enumerate(slopes):
                    made[piece, a] += total * factor


def _register(
    name: str, function: Function, work: Callable[..., Specs], host: tuple[int, ...] = ()
) -> None:
    function, work = widened(function, work)
    kernel(name, work=work, host=host)(function)


_register("GridSample", _grid_sample, _grid_work)
_register("ai.gradtool::Sample", _sample, _sample_work)
_register("ai.gradtool::SampleGradInput", _sample_grad_input, _input_work, host=(2,))
_register("ai.gradtool::SampleGradPositions", _sample_grad_positions, _positions_work)

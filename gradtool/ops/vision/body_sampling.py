"""Interpolation between elements, in standard operators: bodies of `Sample` and its gradients.

A tap is `(index, weight, slope)`: where a position reads, how much, and the derivative of that by
the position.  Positions are `[N, M, axes]`, in elements.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Tensor, as_tensor, ints
from gradtool.ops.shared.scatter import HALF, count, vector, zeros
from gradtool.ops.shared.symbolic_sizes import dims

CUBIC = -0.75


def _constant(op: Builder, value: float, dtype: ir.DataType) -> Tensor:
    return op.constant(np.asarray(value, dtype.numpy()))


def _reflected(op: Builder, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """`x` folded back at the bounds, and the sign of its slope."""
    extent = op.Max(high - low, 1.0)
    below, above = op.Less(x, low), op.Greater(x, high)
    away = op.Where(below, low - x, op.Where(above, x - high, 0.0))
    turns = op.Floor(away / extent)
    rest = away - turns * extent
    odd = op.Equal(turns - op.Floor(turns * 0.5) * 2.0, 1.0)
    folded = op.Where(op.Xor(below, odd), low + rest, high - rest)
    outside = op.Or(below, above)
    slope = op.Where(odd, _constant(op, 1, x.dtype), _constant(op, -1, x.dtype))
    return op.Where(outside, folded, x), op.Where(outside, slope, 1.0)


def _linear(op: Builder, t: Tensor) -> list[tuple[Tensor, Tensor]]:
    one = _constant(op, 1, t.dtype)
    return [(1.0 - t, -one), (t, one)]


def _cubic(op: Builder, t: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Keys' kernel: Source: R. Keys 1981, with the parameter of the specification."""
    a = CUBIC

    def far(s: Tensor, sign: float) -> tuple[Tensor, Tensor]:
        weight = ((s * a - 5 * a) * s + 8 * a) * s - 4 * a
        return weight, ((s * (3 * a) - 10 * a) * s + 8 * a) * sign

    def near(s: Tensor, sign: float) -> tuple[Tensor, Tensor]:
        weight = (s * (a + 2) - (a + 3)) * s * s + 1.0
        return weight, (s * (3 * (a + 2)) - 2 * (a + 3)) * s * sign

    return [far(t + 1.0, 1.0), near(t, 1.0), near(1.0 - t, -1.0), far(2.0 - t, -1.0)]


def _taps(
    op: Builder, x: Tensor, size: Tensor, mode: str, padding: str, align_corners: int
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """The taps of one axis; `size` is a scalar of the positions' type."""
    last = size - 1.0
    low = _constant(op, 0.0 if align_corners else -0.5, x.dtype)
    high = last if align_corners else size - 0.5
    inner = None
    if mode == "nearest":
        x = op.Round(x)
    if padding == "border" and mode != "cubic":
        outside = op.Or(op.Less(x, low), op.Greater(x, high))
        x = op.Where(outside, op.Min(op.Max(x, 0.0), last), x)
        inner = op.Where(outside, 0.0, _constant(op, 1, x.dtype))
    elif padding == "reflection":
        x, inner = _reflected(op, x, low, high)
    first = x if mode == "nearest" else op.Floor(x)
    if mode == "nearest":
        made = [(op.cast(op.Equal(first, first), x.dtype), _constant(op, 0, x.dtype))]
    else:
        made = (_linear if mode == "linear" else _cubic)(op, x - first)
    start = -1.0 if mode == "cubic" else 0.0
    found = []
    for span, (weight, slope) in enumerate(made):
        index = first + (start + span)
        if padding == "zeros":
            seen = op.cast(
                op.And(op.GreaterOrEqual(index, 0.0), op.LessOrEqual(index, last)), x.dtype
            )
            weight, slope = weight * seen, slope * seen  # noqa: PLW2901
        elif padding == "reflection":
            index, _ = _reflected(op, index, low, high)
        index = op.cast(op.Min(op.Max(index, 0.0), last), ir.DataType.INT64)
        found.append((index, weight, slope if inner is None else slope * inner))
    return found


def _size(op: Builder, shape: Tensor, axis: int, dtype: ir.DataType) -> tuple[Tensor, Tensor]:
    """One element of a shape vector as a float, and as an integer vector."""
    known = dims(shape)[axis]
    if isinstance(known, int):
        return _constant(op, known, dtype), op.constant([known])
    size = op.Slice(shape, [axis], [axis + 1], [0])
    return op.cast(op.Squeeze(size, [0]), dtype), size


def _combined(
    op: Builder, positions: Tensor, shape: Tensor, mode: str, padding: str, align_corners: int
) -> Iterator[tuple[Tensor, Tensor, list[Tensor]]]:
    """`(flat index, weight, slope per axis)` of every combination of one tap per axis."""
    rank = ints(positions.shape)[-1]
    axes, lengths = [], []
    for a in range(rank):
        size, length = _size(op, shape, 2 + a, positions.dtype)
        x = op.Gather(positions, op.constant(a), axis=2)
        axes.append(_taps(op, x, size, mode, padding, align_corners))
        lengths.append(length)
    product = functools.partial(functools.reduce, lambda a, b: a * b)
    for chosen in itertools.product(*axes):
        flat = chosen[0][0]
        for (index, _, _), length in zip(chosen[1:], lengths[1:], strict=True):
            flat = flat * length + index
        weights = [weight for _, weight, _ in chosen]
        slopes = [
            product([slope, *weights[:a], *weights[a + 1 :]])
            for a, (_, _, slope) in enumerate(chosen)
        ]
        yield flat, product(weights), slopes


def _per_channel(op: Builder, flat: Tensor, like: Tensor) -> Tensor:
    """Positions `[N, M]` for every channel: `[N, C, M]`."""
    return op.Expand(op.Unsqueeze(flat, [1]), op.shape(like))


def _flat_image(op: Builder, x: Tensor) -> Tensor:
    """`x` as `[N, C, elements]`."""
    return op.reshape(x, [*list(x.shape)[:2], -1])


def _sample_shape(x: Tensor, positions: Tensor) -> Outputs:
    return [((x.shape[0], x.shape[1], positions.shape[1]), x.dtype)]


@composite("Sample", shapes=_sample_shape)
def sample(
    op: Builder, x: Tensor, positions: Tensor, *, mode: str, padding: str, align_corners: int
) -> Tensor:
    """`y[n, c, m] = Σ x[n, c, tap] · weight`, over the taps of position m."""
    image, y = _flat_image(op, x), None
    like = op.Concat(op.size_of(x, 0, 2), op.size_of(positions, 1, 2), axis=0)
    shape = op.shape(x)
    for flat, weight, _ in _combined(op, positions, shape, mode, padding, align_corners):
        index = op.Expand(op.Unsqueeze(flat, [1]), like)
        term = op.GatherElements(image, index, axis=2) * op.Unsqueeze(weight, [1])
        y = term if y is None else y + term
    return as_tensor(y)


def _like_shape(positions: Tensor, dy: Tensor, shape: Tensor) -> Outputs:
    return [(dims(shape), dy.dtype)]


@composite("SampleGradInput", shapes=_like_shape)
def sample_grad_input(
    op: Builder, positions: Tensor, dy: Tensor, shape: Tensor, *,
    mode: str, padding: str, align_corners: int,
) -> Tensor:  # fmt: skip
    """`dx[n, c, tap] += dy[n, c, m] · weight`."""
    wide = ir.DataType.FLOAT if dy.dtype in HALF else dy.dtype
    elements = vector(op, count(op, op.Slice(shape, [2], [len(dims(shape))], [0])))
    lead = op.Slice(shape, [0], [2], [0])
    dx = zeros(op, op.Concat(lead, elements, axis=0), wide)
    for flat, weight, _ in _combined(op, positions, shape, mode, padding, align_corners):
        share = op.cast(dy, wide) * op.cast(op.Unsqueeze(weight, [1]), wide)
        index = _per_channel(op, flat, dy)
        dx = op.ScatterElements(dx, index, share, axis=2, reduction="add")
    return op.cast(op.Reshape(dx, shape), dy.dtype)


@composite("SampleGradPositions", like=1)
def sample_grad_positions(
    op: Builder, x: Tensor, positions: Tensor, dy: Tensor, *,
    mode: str, padding: str, align_corners: int,
) -> Tensor:  # fmt: skip
    """`dposition = Σ_c dy · Σ x[tap] · slope`, per axis."""
    image = _flat_image(op, x)
    totals: dict[int, Tensor] = {}
    shape = op.shape(x)
    for flat, _, slopes in _combined(op, positions, shape, mode, padding, align_corners):
        found = op.GatherElements(image, _per_channel(op, flat, dy), axis=2)
        term = op.ReduceSum(found * dy, [1], keepdims=0)
        for a, slope in enumerate(slopes):
            share = term * slope
            totals[a] = totals[a] + share if a in totals else share
    return op.Concat(*(op.Unsqueeze(total, [2]) for total in totals.values()), axis=2)


def _theta(dy: Tensor) -> Outputs:
    rank = dy.shape[-1]
    return [((dy.shape[0], rank, rank + 1), dy.dtype)]


@composite("AffineGridGrad", shapes=_theta)
def affine_grid_grad(op: Builder, dy: Tensor, size: Tensor, *, align_corners: int = 0) -> Tensor:
    """`dtheta[n] = Σ dy[n, p] ⊗ (points[p], 1)`, the points being the grid of the identity."""
    rank = ints(dy.shape)[-1]
    identity = op.constant(np.eye(rank, rank + 1, dtype=dy.dtype.numpy())[None])
    one = op.Concat([1], op.Slice(size, [1], [rank + 2], [0]), axis=0)
    points = op.AffineGrid(identity, one, align_corners=align_corners)
    points = op.Reshape(points, [-1, rank])
    flat = op.reshape(dy, [dy.shape[0], -1, rank])
    turned = op.MatMul(op.Transpose(flat, perm=[0, 2, 1]), points)
    moved = op.Unsqueeze(op.ReduceSum(flat, [1], keepdims=0), [2])
    return op.Concat(turned, moved, axis=2)

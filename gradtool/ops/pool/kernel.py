"""Pooling and its gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.operators.windows import Window
from gradtool.ops.kernels import kernel
from gradtool.ops.pool.kernel_windows import Pool, planes, rows
from gradtool.ops.shared.types import Array, Arrays, DType, Index

PLACES = 1 << 14  # places at a time that are made those of several planes


def lowest(dtype: DType) -> float:
    """The number below all others."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return -math.inf


# ------------------------------------------------------------------------------ maximum


def _max_work(x: Spec, *, out: Sequence[Spec | None], **attributes: Any) -> list[Spec]:
    pool = Pool.of(x, out[0] or out[1], attributes)
    none = Spec((0,), x.dtype)
    wanted = len(out) > 1 and out[1] is not None
    return [pool.block(x.dtype) if out[0] is None else none, pool.block(bool) if wanted else none]


@kernel("MaxPool", work=_max_work)
def max_pool(
    xp: Any, x: Array, *,
    out: Arrays, work: Arrays, kernel_shape: Sequence[int], auto_pad: str = "NOTSET",
    ceil_mode: int = 0, dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    storage_order: int = 0, strides: Sequence[int] | None = None,
) -> None:  # fmt: skip
    """`(y, indices)`: the greatest element of each window and its place, counted over all of x.

    Of equal elements the first one counts.
    """
    given = {
        "kernel_shape": kernel_shape, "auto_pad": auto_pad, "dilations": dilations,
        "pads": pads, "strides": strides,
    }  # fmt: skip
    _maxima(xp, x, out, work, given, storage_order)


@kernel("ai.gradtool::MaxPoolTraining", work=_max_work)
def max_pool_training(
    xp: Any, x: Array, *,
    out: Arrays, work: Arrays, ceil_mode: int = 0, storage_order: int = 0, **attributes: Any,
) -> None:  # fmt: skip
    """`(y, places)`, places counted within their plane, in a type with room for them."""
    _maxima(xp, x, out, work, attributes, 0)


def _maxima(
    xp: Any,
    x: Array,
    out: Sequence[Array | None],
    work: Arrays,
    attributes: Mapping[str, Any],
    storage_order: int,
) -> None:
    y, indices = (*out, None)[:2]
    pool = Pool.of(x, y if y is not None else indices, attributes)
    taps = list(pool.taps())
    source = planes(x)
    for span in pool.blocks():
        part = source[span]
        made = work[0][: part.shape[0]] if y is None else planes(y)[span]
        made.fill(lowest(x.dtype))
        for _, outer, inner in taps:
            met = made[outer]
            xp.maximum(met, part[inner], out=met)
        if indices is not None:
            places = planes(indices)[span]
            _places(xp, pool, taps, part, made, span, places, work[1], storage_order)


def _places(
    xp: Any, pool: Pool, taps: Sequence[Sequence[Index]], part: Array, made: Array, span: slice,
    places: Array, work: Array, storage_order: int,
) -> None:  # fmt: skip
    """Write where each maximum of a block lies: last taps first, so that the first one stays.

    Of a window with a NaN that is the place of the last NaN, as in PyTorch.

    Places in int64 are counted over all of x, others within their plane.  Sums may leave the
    range of their type on the way: they wrap around and back.
    """
    strides = _place_strides(pool.x[2:], storage_order)
    places.fill(0)
    offsets = [
        sum(t * d * s for t, d, s in zip(tap, pool.window.dilations, strides, strict=True))
        for tap, _, _ in taps
    ]
    mask = work[: part.shape[0]]
    for (_, outer, inner), offset in zip(reversed(taps), reversed(offsets), strict=True):
        found = mask[outer]
        xp.less(part[inner], made[outer], out=found)
        xp.logical_not(found, out=found)
        xp.copyto(places[outer], int(np.int64(offset).astype(places.dtype)), where=found)
    if made.dtype.kind == "f" and made.size and bool(xp.isnan(xp.max(made))):
        for (_, outer, inner), offset in zip(taps, offsets, strict=True):
            found = xp.not_equal(part[inner], part[inner], out=mask[outer])
            xp.copyto(places[outer], int(np.int64(offset).astype(places.dtype)), where=found)
    rank = len(strides)
    axes = zip(pool.y[2:], pool.window.strides, pool.window.begin, strides, strict=True)
    for axis, (count, stride, begin, size) in enumerate(axes):
        starts = ((xp.arange(count) * stride - begin) * size).astype(places.dtype)
        xp.add(places, starts.reshape((-1,) + (1,) * (rank - 1 - axis)), out=places)
    if places.dtype != np.int64:
        return
    plane = math.prod(pool.x[2:])
    first = xp.arange(span.start, span.stop) * plane
    xp.add(places, first.reshape((-1,) + (1,) * rank), out=places)


def _place_strides(sizes: Sequence[int], storage_order: int) -> list[int]:
    """Strides of the axes in the count of places."""
    strides = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    if storage_order and len(sizes) > 1:
        strides = [math.prod(sizes[:axis]) for axis in range(len(sizes))]
    return strides


def _tile(dy: Array | Spec) -> tuple[int, int]:
    """Number of planes of dy added at a time, and number of elements of each."""
    planes, windows = math.prod(dy.shape[:2]), math.prod(dy.shape[2:])
    places = at_a_time(PLACES)
    return max(1, min(places // max(1, windows), planes)), max(1, min(places, windows))


def _max_grad_work(dy: Spec, indices: Spec, *, storage_order: int) -> list[Spec]:
    if indices.dtype != np.int64:
        count = min(math.prod(_tile(dy)), math.prod(dy.shape))
        return [Spec((count,), np.dtype(np.int64))]
    count = min(math.prod(dy.shape), 1 << 15) if storage_order else 0
    return [Spec((count,), np.dtype(np.int64))] * 3


@kernel("ai.gradtool::MaxPoolGrad", host=(2,), work=_max_grad_work)
def max_pool_grad(
    xp: Any, dy: Array, indices: Array, _: Array, *, out: Arrays, work: Arrays, storage_order: int
) -> None:
    """Dy added where the forward pass found the maxima."""
    dx = out[0].reshape(-1)
    dx.fill(0)
    if indices.dtype != np.int64:
        _add_in_planes(xp, out[0], indices, dy, work[0])
        return
    places, values = indices.reshape(-1), dy.reshape(-1)
    from gradtool.ops.index.kernel_accumulate import accumulate

    if not storage_order:
        accumulate(xp, "add", dx, places, values)
        return
    block = work[0].size
    for first in range(0, values.size, max(1, block)):
        part = places[first : first + block]
        targets = [w[: part.size] for w in work]
        _to_row_major(xp, part, out[0].shape[2:], *targets)
        accumulate(xp, "add", dx, targets[0], values[first : first + block])


def _add_in_planes(xp: Any, dx: Array, places: Array, dy: Array, work: Array) -> None:
    """Dy added at places counted within their planes, some planes at a time."""
    from gradtool.ops.index.kernel_accumulate import accumulate

    step, width = _tile(dy)
    dx, places, dy = (rows(a) for a in (dx, places, dy))
    for first, start in itertools.product(*(map(range, (0, 0), dy.shape, (step, width)))):
        part = slice(first, first + step), slice(start, start + width)
        values = dy[part]
        target = work[: values.size].reshape(values.shape)
        xp.copyto(target, places[part])
        xp.add(target, xp.arange(len(target))[:, None] * dx.shape[1], out=target)
        accumulate(xp, "add", dx[part[0]].reshape(-1), target.reshape(-1), values.reshape(-1))


def _to_row_major(
    xp: Any, places: Array, sizes: Sequence[int], result: Array, rest: Array, digit: Array
) -> None:
    """Places counted with the first axis fastest, counted with the last one fastest."""
    plane = math.prod(sizes)
    xp.floor_divide(places, plane, out=result)
    xp.multiply(result, plane, out=result)
    xp.remainder(places, plane, out=rest)
    for axis, size in enumerate(sizes):
        xp.remainder(rest, size, out=digit)
        xp.multiply(digit, math.prod(sizes[axis + 1 :]), out=digit)
        xp.add(result, digit, out=result)
        xp.floor_divide(rest, size, out=rest)


# ------------------------------------------------------------------------- whole planes


def _global_work(x: Spec) -> list[Spec]:
    wide = x.dtype if x.dtype.itemsize > 2 else np.dtype(np.float32)
    ones = math.prod(x.shape[2:]) if wide == x.dtype else 0
    return [Spec((ones,), x.dtype), Spec((x.shape[0] * x.shape[1],), wide)]


@kernel("GlobalAveragePool", work=_global_work)
def global_average_pool(xp: Any, x: Array, *, out: Arrays, work: Arrays) -> None:
    """The mean of each plane; sums are products with ones, faster than adding."""
    lines, (ones, sums) = rows(x), work
    if sums.dtype == x.dtype:
        ones.fill(1)
        xp.matmul(lines, ones, out=sums)
    else:
        xp.sum(lines, axis=1, dtype=sums.dtype, out=sums)
    xp.divide(sums, max(1, lines.shape[1]), out=out[0].reshape(-1), casting="unsafe")


@kernel("GlobalMaxPool")
def global_max_pool(xp: Any, x: Array, *, out: Arrays) -> None:
    """The greatest element of each plane."""
    xp.max(rows(x), axis=1, out=out[0].reshape(-1))


@kernel("ai.gradtool::GlobalMaxPoolGrad")
def global_max_pool_grad(xp: Any, x: Array, dy: Array, *, out: Arrays) -> None:
    out[0].fill(0)
    dx, dy = rows(out[0]), dy.reshape(-1)
    for row, values in enumerate(rows(x)):
        dx[row, xp.argmax(values)] = dy[row]


def _unpool_sizes(x: Array, shape: Array | None, attributes: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of the result, in which indices are counted: as given, or as the pooling's was."""
    if shape is not None:
        return tuple(int(n) for n in shape)
    window = Window.of(attributes["kernel_shape"], (), attributes)
    axes = zip(x.shape[2:], window.strides, window.kernel, window.begin, window.end, strict=True)
    return (*x.shape[:2], *((size - 1) * s + k - b - e for size, s, k, b, e in axes))


@kernel(
    "MaxUnpool", host=(2,), temporaries=lambda x, indices, *, out: 3 * indices.bytes + out[0].bytes
)
def max_unpool(
    xp: Any, x: Array, indices: Array, shape: Array | None = None, **attributes: Any
) -> Array:
    """Zeros, with x at the places that `indices` counts."""
    from gradtool.ops.index.kernel_accumulate import assign, normalised

    sizes = _unpool_sizes(x, shape, attributes)
    y = xp.zeros(math.prod(sizes), x.dtype)
    places = normalised(xp, indices.reshape(-1), y.size, xp.empty(indices.size, np.int64))
    assign(xp, y, places, x.reshape(-1))
    return y.reshape(sizes)

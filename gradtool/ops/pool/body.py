"""Composites of the pool family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Tensor, as_tensor, ints
from gradtool.operators.windows import Window
from gradtool.ops.shared.scatter import add_elements, add_positions
from gradtool.ops.shared.symbolic_sizes import dims


def _of_sizes(dy: Tensor, *inputs: Tensor) -> Outputs:
    return [(dims(inputs[-1]), dy.dtype)]


def place_type(plane: int) -> ir.DataType:
    """The smallest type that counts the places of a plane of so many elements."""
    fitting = (t for t in (ir.DataType.UINT8, ir.DataType.UINT16) if plane <= 1 << t.bitwidth)
    return next(fitting, ir.DataType.INT64)


def _pooled(
    x: Tensor, *, kernel_shape: Sequence[int], ceil_mode: int = 0, **attributes: Any
) -> Outputs:
    window = Window.of(kernel_shape, x.shape[2:], attributes, pool=True)
    image = ints(x.shape[2:])
    shape = (*x.shape[:2], *(window.count(a, n, ceil=bool(ceil_mode)) for a, n in enumerate(image)))
    return [(shape, x.dtype), (shape, place_type(math.prod(image)))]


@composite("MaxPoolTraining", shapes=_pooled, outputs=2)
def max_pool_training(op: Builder, x: Tensor, **attributes: Any) -> tuple[Tensor, Tensor]:
    """`(y, places)`: the greatest element of each window, and its place in its plane.

    A plane is an image of one channel, of known size.  Of equal elements the first one counts.
    """
    y, indices = op.MaxPool(x, outputs=2, **attributes)
    plane = math.prod(ints(x.shape[2:]))
    return y, op.Cast(op.Mod(indices, plane), to=place_type(plane))


@composite("MaxPoolGrad", shapes=_of_sizes)
def max_pool_grad(
    op: Builder, dy: Tensor, indices: Tensor, sizes: Tensor, *, storage_order: int
) -> Tensor:
    """Each element of dy is added to `dx`, of shape `sizes`, where `indices` says.

    Places are counted over all of dx, or within their plane if they are no int64; with
    `storage_order` 1 the first spatial axis is fastest.
    """
    if indices.dtype != ir.DataType.INT64:
        return _add_in_planes(op, dy, indices, sizes)
    if storage_order:
        indices = _row_major(op, indices, sizes)
    return add_positions(op, dy, indices, sizes)


def _add_in_planes(op: Builder, dy: Tensor, places: Tensor, sizes: Tensor) -> Tensor:
    """Each element of dy added in its plane, at its place counted within the plane."""
    rank = len(dy.shape)
    plane = op.ReduceProd(op.Slice(sizes, [2], [rank]), keepdims=1)
    planes = op.ReduceProd(op.Slice(sizes, [0], [2]), keepdims=1)
    windows = op.ReduceProd(op.Slice(op.shape(dy), [2], [rank]), keepdims=1)
    image, rows = (op.Concat(planes, n, axis=0) for n in (plane, windows))
    places = op.Cast(op.Reshape(places, rows, allowzero=1), to=ir.DataType.INT32)
    values = op.Reshape(dy, rows, allowzero=1)
    dx = add_elements(op, values, places, image, 1)
    return op.Reshape(dx, sizes, allowzero=1)


def _row_major(op: Builder, places: Tensor, sizes: Tensor) -> Tensor:
    """Places counted with the first axis fastest, counted with the last one fastest."""
    rank = len(places.shape) - 2
    axes = [op.Gather(sizes, 2 + axis) for axis in range(rank)]
    plane = op.ReduceProd(op.Slice(sizes, [2], [2 + rank]), keepdims=0)
    rest = op.Mod(places, plane)
    result = places - rest
    for axis, size in enumerate(axes):
        digit = op.Mod(rest, size)
        for other in axes[axis + 1 :]:
            digit = digit * other
        result = result + digit
        rest = rest / size
    return result


@composite("AveragePoolGrad", shapes=_of_sizes)
def average_pool_grad(
    op: Builder, dy: Tensor, sizes: Tensor, *, kernel_shape: Sequence[int], strides: Sequence[int],
    dilations: Sequence[int], pads: Sequence[int], count_include_pad: int,
) -> Tensor:  # fmt: skip
    """Each window's share, dy by its number of elements, is added to all of them.

    `dx` has shape `sizes`.
    """
    given = {"strides": strides, "dilations": dilations, "pads": pads}
    window = Window.of(kernel_shape, (), given)
    shares = dy / _counts(op, window, dy, sizes, count_include_pad=count_include_pad)

    return spread(op, window, shares, sizes)


def spread(op: Builder, window: Window, shares: Tensor, sizes: Tensor) -> Tensor:
    """A tensor of shape `sizes` to which each window's share is added wherever it has a tap.

    That is the transposed convolution with ones, of each plane by itself.
    """
    rank = window.rank
    apart = op.Concat([-1, 1], op.Slice(op.shape(shares), [2], [2 + rank]), axis=0)
    ones = np.ones((1, 1, *window.kernel), shares.dtype.numpy())
    full = op.ConvTranspose(
        op.Reshape(shares, apart), ones, strides=window.strides, dilations=window.dilations,
        output_padding=[s - 1 for s in window.strides],
    )  # fmt: skip
    begin, axes = op.constant(list(window.begin)), list(range(2, 2 + rank))
    spatial = op.Slice(sizes, [2], [2 + rank])
    return op.Reshape(op.Slice(full, begin, spatial + begin, axes), sizes, allowzero=1)


def _counts(
    op: Builder, window: Window, dy: Tensor, sizes: Tensor, *, count_include_pad: int
) -> Tensor:
    """The number of elements of each window: a product over axes, broadcast to dy."""
    total = None
    for axis, kernel in enumerate(window.kernel):
        start, step = window.begin[axis], window.strides[axis]
        low = -start if count_include_pad else 0
        after = window.end[axis] if count_include_pad else 0
        out = op.Squeeze(op.size(dy.shape[2 + axis]), [0])
        size = op.Gather(sizes, 2 + axis)
        places = op.Range(op.constant(0), out, op.constant(1)) * step - start
        taps = np.arange(kernel, dtype=np.int64) * window.dilations[axis]
        places = op.Unsqueeze(places, [1]) + op.constant(taps)
        inside = op.And(op.GreaterOrEqual(places, low), op.Less(places, size + after))
        count = op.ReduceSum(op.Cast(inside, to=dy.dtype), [1], keepdims=0)
        count = op.Max(count, op.constant(1.0, dy.dtype))
        rest = list(range(1, window.rank - axis))
        count = op.unsqueeze(count, rest)
        total = count if total is None else total * count
    return as_tensor(total)


@composite("GlobalMaxPoolGrad", like=0)
def global_max_pool_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy` at the first maximum of each plane of x, zero elsewhere."""
    flat = op.Reshape(x, [0, 0, -1])
    place = op.ArgMax(flat, axis=2, keepdims=1)
    dx = op.ScatterElements(op.zeros_like(flat), place, op.Reshape(dy, [0, 0, -1]), axis=2)
    return op.reshape_like(dx, x)


def _slope(op: Builder, x: Tensor, p: int) -> Tensor:
    """`sign(x) · |x|^(p - 1)`, the derivative of `|x|^p / p`."""
    if p == 1:
        return op.Sign(x)
    return x if p == 2 else op.Sign(x) * op.Pow(op.Abs(x), op.constant(float(p - 1), x.dtype))


def _share(op: Builder, y: Tensor, dy: Tensor, p: int) -> Tensor:
    """`dy · y^(1 - p)`, 0 where y is 0."""
    is_zero = op.Equal(y, 0.0)
    safe = op.Where(is_zero, op.constant(1.0, y.dtype), y)
    return op.Where(is_zero, op.constant(0.0, y.dtype), dy) * op.Pow(
        safe, op.constant(float(1 - p), y.dtype)
    )


@composite("LpPoolGrad", like=0)
def lp_pool_grad(
    op: Builder, x: Tensor, y: Tensor, dy: Tensor, *, p: int, kernel_shape: Sequence[int],
    strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int],
) -> Tensor:  # fmt: skip
    """`dx = sign(x) · |x|^(p - 1) · Σ dy · y^(1 - p)` over the windows that an element is in."""
    given = {"strides": strides, "dilations": dilations, "pads": pads}
    window = Window.of(kernel_shape, (), given)
    return _slope(op, x, p) * spread(op, window, _share(op, y, dy, p), op.shape(x))


@composite("GlobalLpPoolGrad", like=0)
def global_lp_pool_grad(op: Builder, x: Tensor, y: Tensor, dy: Tensor, *, p: int) -> Tensor:
    """`dx = sign(x) · |x|^(p - 1) · dy · y^(1 - p)`, 0 where y is 0."""
    return _slope(op, x, p) * _share(op, y, dy, p)

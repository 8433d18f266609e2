"""Products of matrices and convolutions of integers: exact, by way of float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.conv.kernel import _forward_work as conv_work
from gradtool.ops.conv.kernel import conv
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array, Arrays, Specs

FLOAT64 = np.dtype(np.float64)


def _wide(value: Spec) -> Spec:
    return Spec(tuple(value.shape), FLOAT64)


def _centre(xp: Any, x: Array, zero: Array, room: Array, axis: int) -> Array:
    """`x - zero` in float64; zeros of one axis lie along `axis`."""
    xp.copyto(room, x, casting="unsafe")
    if zero is not None:
        room -= along(zero, x.ndim, axis).astype(FLOAT64)
    return room


def along(values: Array, rank: int, axis: int) -> Array:
    """A vector laid along an axis; anything else as it is."""
    if values.ndim != 1 or values.size == 1:
        return values.reshape(()) if values.size == 1 else values
    return values.reshape([-1 if a == axis % rank else 1 for a in range(rank)])


def _saturate(xp: Any, values: Array, zero: Array, y: Array) -> None:
    """`y = values + zero` rounded, within the range of its type."""
    xp.rint(values, out=values)
    if zero is not None:
        values += zero.astype(FLOAT64)
    bounds = np.iinfo(y.dtype)
    xp.clip(values, bounds.min, bounds.max, out=values)
    xp.copyto(y, values, casting="unsafe")


def _matmul_work(
    a: Spec, b: Spec, *others: Spec | None, out: Specs, **attributes: Any
) -> list[Spec]:
    return [_wide(a), _wide(b), _wide(out[0])]


@kernel("MatMulInteger", work=_matmul_work)
def matmul_integer(
    xp: Any, a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None, *,
    out: Arrays, work: Arrays,
) -> None:  # fmt: skip
    """`y = (a - a_zero) @ (b - b_zero)`; zeros are for all, by row of a, by column of b."""
    left, right, product = work
    rows = max(a.ndim, 2) - 2
    _centre(xp, a, a_zero, left, rows)
    _centre(xp, b, b_zero, right, -1)
    xp.matmul(left, right, out=product)
    xp.copyto(out[0], product, casting="unsafe")


@kernel("QLinearMatMul", work=lambda a, a_scale, a_zero, b, *, out: _matmul_work(a, b, out=out))
def qlinear_matmul(
    xp: Any, a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array,
    y_scale: Array, y_zero: Array, *,
    out: Arrays, work: Arrays,
) -> None:  # fmt: skip
    """The product of dequantised matrices, quantised."""
    left, right, product = work
    rows = max(a.ndim, 2) - 2
    _centre(xp, a, a_zero, left, rows)
    _centre(xp, b, b_zero, right, -1)
    xp.matmul(left, right, out=product)
    for scale, axis in ((a_scale, rows), (b_scale, -1)):
        product *= along(scale, a.ndim, axis).astype(FLOAT64)
    product /= along(y_scale, a.ndim, rows).astype(FLOAT64)
    _saturate(xp, product, along(y_zero, a.ndim, rows), out[0])


def _conv_work(x: Spec, w: Spec, y: Spec, attributes: Mapping[str, Any]) -> list[Spec]:
    wide = [_wide(x), _wide(w), _wide(y)]
    return [*wide, *conv_work(*wide[:2], out=(wide[2],), **attributes)]


def _convolve(
    xp: Any, x: Array, x_zero: Array, w: Array, w_zero: Array, work: Arrays,
    attributes: Mapping[str, Any],
) -> Array:  # fmt: skip
    images, weights, made, *rest = work
    _centre(xp, x, x_zero, images, 1)
    _centre(xp, w, w_zero, weights, 0)
    conv(xp, images, weights, out=[made], work=rest, **attributes)
    return made


@kernel("ConvInteger", work=lambda x, w, *, out, **attributes: _conv_work(x, w, out[0], attributes))
def conv_integer(
    xp: Any, x: Array, w: Array, x_zero: Array | None = None, w_zero: Array | None = None, *,
    out: Arrays, work: Arrays, **attributes: Any,
) -> None:  # fmt: skip
    """The convolution of `x - x_zero` by `w - w_zero`."""
    made = _convolve(xp, x, x_zero, w, w_zero, work, attributes)
    xp.copyto(out[0], made, casting="unsafe")


def _qconv_work(
    x: Spec, x_scale: Spec, x_zero: Spec, w: Spec, *, out: Specs, **attributes: Any
) -> list[Spec]:
    return _conv_work(x, w, out[0], attributes)


@kernel("QLinearConv", work=_qconv_work)
def qlinear_conv(
    xp: Any, x: Array, x_scale: Array, x_zero: Array, w: Array, w_scale: Array, w_zero: Array,
    y_scale: Array, y_zero: Array, bias: Array | None = None, *,
    out: Arrays, work: Arrays, **attributes: Any,
) -> None:  # fmt: skip
    """The convolution of dequantised images and weights, quantised; scales of w are by channel."""
    made = _convolve(xp, x, x_zero, w, w_zero, work, attributes)
    if bias is not None:
        made += along(bias, x.ndim, 1).reshape(1, -1, *[1] * (x.ndim - 2))
    made *= along(w_scale, x.ndim, 1).astype(FLOAT64)
    made *= x_scale.astype(FLOAT64) / y_scale.astype(FLOAT64)
    _saturate(xp, made, y_zero, out[0])

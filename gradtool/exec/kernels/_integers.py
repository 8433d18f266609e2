"""Products of matrices and convolutions of integers: exact, by way of float64."""

from __future__ import annotations

import numpy as np

from gradtool.exec.kernel import kernel
from gradtool.exec.kernels.conv import _forward_work as conv_work
from gradtool.exec.kernels.conv import conv
from gradtool.program import Spec

FLOAT64 = np.dtype(np.float64)


def _wide(value):
    return Spec(tuple(value.shape), FLOAT64)


def _centre(xp, x, zero, room, axis):
    """`x - zero` in float64; zeros of one axis lie along `axis`."""
    xp.copyto(room, x, casting="unsafe")
    if zero is not None:
        room -= along(zero, x.ndim, axis).astype(FLOAT64)
    return room


def along(values, rank, axis):
    """A vector laid along an axis; anything else as it is."""
    if values.ndim != 1 or values.size == 1:
        return values.reshape(()) if values.size == 1 else values
    return values.reshape([-1 if a == axis % rank else 1 for a in range(rank)])


def _saturate(xp, values, zero, y):
    """`y = values + zero` rounded, within the range of its type."""
    xp.rint(values, out=values)
    if zero is not None:
        values += zero.astype(FLOAT64)
    bounds = np.iinfo(y.dtype)
    xp.clip(values, bounds.min, bounds.max, out=values)
    xp.copyto(y, values, casting="unsafe")


def _matmul_work(a, b, *others, out, **attributes):
    return [_wide(a), _wide(b), _wide(out[0])]


@kernel("MatMulInteger", work=_matmul_work)
def matmul_integer(xp, a, b, a_zero=None, b_zero=None, *, out, work):
    """`y = (a - a_zero) @ (b - b_zero)`; zeros are for all, by row of a, by column of b."""
    left, right, product = work
    rows = max(a.ndim, 2) - 2
    _centre(xp, a, a_zero, left, rows)
    _centre(xp, b, b_zero, right, -1)
    xp.matmul(left, right, out=product)
    xp.copyto(out[0], product, casting="unsafe")


def _qmatmul_work(a, a_scale, a_zero, b, *others, out):
    return _matmul_work(a, b, out=out)


@kernel("QLinearMatMul", work=_qmatmul_work)
def qlinear_matmul(
    xp, a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero, *, out, work
):  # fmt: skip
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


def _conv_work(x, w, y, attributes):
    wide = [_wide(x), _wide(w), _wide(y)]
    return [*wide, *conv_work(*wide[:2], out=(wide[2],), **attributes)]


def _convolve(xp, x, x_zero, w, w_zero, work, attributes):
    images, weights, made, *rest = work
    _centre(xp, x, x_zero, images, 1)
    _centre(xp, w, w_zero, weights, 0)
    conv(xp, images, weights, out=[made], work=rest, **attributes)
    return made


def _conv_integer_work(x, w, *zeros, out, **attributes):
    return _conv_work(x, w, out[0], attributes)


@kernel("ConvInteger", work=_conv_integer_work)
def conv_integer(xp, x, w, x_zero=None, w_zero=None, *, out, work, **attributes):
    """The convolution of `x - x_zero` by `w - w_zero`."""
    made = _convolve(xp, x, x_zero, w, w_zero, work, attributes)
    xp.copyto(out[0], made, casting="unsafe")


def _qconv_work(x, x_scale, x_zero, w, *others, out, **attributes):
    return _conv_work(x, w, out[0], attributes)


@kernel("QLinearConv", work=_qconv_work)
def qlinear_conv(
    xp, x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias=None, *, out, work,
    **attributes,
):  # fmt: skip
    """The convolution of dequantised images and weights, quantised; scales of w are by channel."""
    made = _convolve(xp, x, x_zero, w, w_zero, work, attributes)
    if bias is not None:
        made += along(bias, x.ndim, 1).reshape(1, -1, *[1] * (x.ndim - 2))
    made *= along(w_scale, x.ndim, 1).astype(FLOAT64)
    made *= x_scale.astype(FLOAT64) / y_scale.astype(FLOAT64)
    _saturate(xp, made, y_zero, out[0])

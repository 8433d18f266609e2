"""Quantisation: for a whole tensor, along an axis, or in blocks of an axis."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from gradtool.exec.kernel import kernel
from gradtool.exec.kernels import _integers  # noqa: F401 - it registers
from gradtool.exec.kernels._blocks import aligned
from gradtool.exec.kernels._sums import BLOCK
from gradtool.program import Spec

FLOAT32 = np.dtype(np.float32)


def parts(x, scale, axis, block_size):
    """`(index of x, its shape, index of scale, its shape)`: such that the second broadcasts.

    The last block of an axis may be shorter than the others.
    """
    shape = tuple(x.shape)
    if math.prod(scale.shape) == 1 and len(scale.shape) <= 1:
        yield (), shape, (), (1,) * len(shape)
    elif not block_size:
        axis %= len(shape)
        yield (), shape, (), (1,) * axis + (shape[axis],) + (1,) * (len(shape) - axis - 1)
    else:
        axis %= len(shape)
        whole, rest = divmod(shape[axis], block_size)
        lead = (slice(None),) * axis
        for start, count, size in ((0, whole, block_size), (whole, bool(rest), rest)):
            if count:
                first = start * block_size
                chosen = (*lead, slice(first, first + count * size))
                split = (*shape[:axis], count, size, *shape[axis + 1 :])
                scales = (*shape[:axis], count, 1, *shape[axis + 1 :])
                yield chosen, split, (*lead, slice(start, start + count)), scales


def _pieces(xp, x, y, scale, zero, axis, block_size):
    """Blocks `(y, x, scale, zero)` that fit the second-level cache."""
    for index, shape, of_scale, scales in parts(x, scale, axis, block_size):
        given = (x[index].reshape(shape), scale[of_scale].reshape(scales))
        if zero is not None:
            given = (*given, zero[of_scale].reshape(scales))
        target = y[index]
        target = target.reshape(shape) if target.flags.c_contiguous else _split(target, shape)
        for part, values in aligned(xp, target, given):
            yield part, *values, *[None] * (3 - len(values))


def _split(array, shape):
    """A window on the array in which one axis is two: reshape would copy."""
    view = array.view()
    view.shape = shape
    return view


def _room(x, compute, wide):
    size = (min(BLOCK, math.prod(x.shape)),)
    return [Spec(size, compute), Spec(size, wide)]


def _precision(scale, precision):
    return np.dtype(ir.DataType(precision).numpy()) if precision else np.dtype(scale.dtype)


def _widest(dtype):
    return np.dtype(np.float64) if dtype.itemsize == 8 else FLOAT32


def _quantize_work(x, scale, zero=None, *, out, precision=0, **attributes):
    compute = _precision(scale, precision)
    return _room(x, compute, _widest(compute))


@kernel("QuantizeLinear", work=_quantize_work)
def quantize_linear(
    xp, x, scale, zero=None, *, out, work, axis=1, saturate=1, block_size=0, output_dtype=0,
    precision=0,
):  # fmt: skip
    """`y = saturate(round(x / scale) + zero)`, halves to even; floats of 8 or 4 bits as they come.

    The quotient has the precision of the scale, or the one asked for.
    """
    for y, source, by, offset in _pieces(xp, x, out[0], scale, zero, axis, block_size):
        quotient, wide = (w[: y.size].reshape(y.shape) for w in work)
        xp.copyto(quotient, source, casting="unsafe")
        xp.divide(quotient, by.astype(quotient.dtype, copy=False), out=quotient)
        xp.copyto(wide, quotient, casting="unsafe")
        if _is_integer(y.dtype):
            xp.rint(wide, out=wide)
            if offset is not None:
                wide += offset.astype(wide.dtype)
            xp.clip(wide, *_range(y.dtype), out=wide)
        elif saturate or y.dtype.itemsize * 8 != _bits(y.dtype):
            xp.clip(wide, *_range(y.dtype), out=wide)
        xp.copyto(y, wide, casting="unsafe")


def _is_integer(dtype):
    return "int" in dtype.name


def _bits(dtype):
    return ir.DataType.from_numpy(dtype).bitwidth


def _range(dtype):
    import ml_dtypes

    found = ml_dtypes.iinfo(dtype) if _is_integer(dtype) else ml_dtypes.finfo(dtype)
    return float(found.min), float(found.max)


def _dequantize_work(x, scale, zero=None, *, out, **attributes):
    return _room(x, FLOAT32, _widest(np.dtype(scale.dtype)))[1:]


@kernel("DequantizeLinear", work=_dequantize_work)
def dequantize_linear(
    xp, x, scale, zero=None, *, out, work, axis=1, block_size=0, output_dtype=0
):
    """`y = (x - zero) · scale`."""
    for y, source, by, offset in _pieces(xp, x, out[0], scale, zero, axis, block_size):
        wide = work[0][: y.size].reshape(y.shape)
        xp.copyto(wide, source, casting="unsafe")
        if offset is not None:
            wide -= offset.astype(wide.dtype)
        wide *= by.astype(wide.dtype, copy=False)
        xp.copyto(y, wide, casting="unsafe")


@kernel("DynamicQuantizeLinear", temporaries=lambda x, *, out, **_: 3 * x.bytes)
def dynamic_quantize_linear(xp, x):
    """`(y, scale, zero)`, with the scale that brings x, and 0, into eight bits."""
    low = xp.minimum(x.min(), 0).astype(FLOAT32)
    high = xp.maximum(x.max(), 0).astype(FLOAT32)
    scale = ((high - low) / FLOAT32.type(255)).astype(FLOAT32)
    scale = xp.where(scale == 0, FLOAT32.type(1), scale)
    zero = xp.rint(xp.clip(-low / scale, 0, 255))
    y = xp.clip(xp.rint(x / scale) + zero, 0, 255).astype(np.uint8)
    return y, scale.reshape(()), zero.astype(np.uint8).reshape(())

"""Conversions between types."""

from __future__ import annotations

import numpy as np

from gradtool.exec.kernel import kernel
from gradtool.exec.kernels._sums import blocks, largest_block
from gradtool.program import Spec


def _float8(dtype):
    return np.dtype(dtype).name.startswith("float8")


def _work(x, like=None, *, out, to=None, saturate=1, round_mode="up"):
    narrows = _float8(out[0].dtype)
    return [Spec((largest_block(x.shape),), np.dtype(np.float32))] if narrows else []


def _convert(xp, x, y, work, saturate, round_mode):
    """`y = x` in the type of y; with `saturate`, eight-bit floats stop at their largest number."""
    if not _float8(y.dtype):
        xp.copyto(y, x, casting="unsafe")
        return
    for index in blocks(y.shape):
        wide = work[0][: y[index].size].reshape(y[index].shape)
        xp.copyto(wide, x[index], casting="unsafe")
        if y.dtype.name == "float8_e8m0fnu":
            _exponents(xp, wide, y[index], saturate, round_mode)
            continue
        if saturate:
            largest = _largest(y.dtype)
            xp.clip(wide, -largest, largest, out=wide)
        xp.copyto(y[index], wide, casting="unsafe")


def _exponents(xp, wide, y, saturate, round_mode):
    from onnx.numpy_helper import to_float8e8m0

    made = to_float8e8m0(wide, saturate=bool(saturate), round_mode=round_mode)
    xp.copyto(y, made)


def _largest(dtype):
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).max)


@kernel("Cast", strided=True, work=_work)
def cast(xp, x, *, out, work, to, saturate=1, round_mode="up"):
    _convert(xp, x, out[0], work, saturate, round_mode)


@kernel("CastLike", strided=True, work=_work)
def cast_like(xp, x, like, *, out, work, saturate=1, round_mode="up"):
    _convert(xp, x, out[0], work, saturate, round_mode)

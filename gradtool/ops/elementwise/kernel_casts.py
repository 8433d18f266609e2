"""Conversions between types."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.sums import blocks, largest_block
from gradtool.ops.shared.types import Array, Arrays, DType, Specs


def _float8(dtype: DType) -> bool:
    return np.dtype(dtype).name.startswith("float8")


def _work(x: Spec, *, out: Specs) -> list[Spec]:
    narrows = _float8(out[0].dtype)
    return [Spec((largest_block(x.shape),), np.dtype(np.float32))] if narrows else []


def _convert(xp: Any, x: Array, y: Array, work: Arrays, saturate: int, round_mode: str) -> None:
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


def _exponents(xp: Any, wide: Array, y: Array, saturate: Array, round_mode: Array) -> None:
    from onnx.numpy_helper import to_float8e8m0

    made = to_float8e8m0(wide, saturate=bool(saturate), round_mode=round_mode)
    xp.copyto(y, made)


def _largest(dtype: DType) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).max)


@kernel("Cast", strided=True, work=_work)
def cast(
    xp: Any,
    x: Array,
    *,
    out: Arrays,
    work: Arrays,
    to: int,
    saturate: int = 1,
    round_mode: str = "up",
) -> None:
    _convert(xp, x, out[0], work, saturate, round_mode)


@kernel("CastLike", strided=True, work=_work)
def cast_like(
    xp: Any,
    x: Array,
    like: Array,
    *,
    out: Arrays,
    work: Arrays,
    saturate: int = 1,
    round_mode: str = "up",
) -> None:
    _convert(xp, x, out[0], work, saturate, round_mode)

"""Quantisation: for a whole tensor, along an axis, or in blocks of an axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.quantize.kernel_scales import (
    is_integer,
    largest_piece,
    limits,
    pieces,
    precision_of,
)
from gradtool.ops.shared.types import Array, Arrays, DType

FLOAT32 = np.dtype(np.float32)


def _room(
    x: Spec, scale: Spec, attributes: Mapping[str, Any], compute: DType, wide: DType
) -> list[Spec]:
    size = (largest_piece(x, scale, **attributes),)
    return [Spec(size, compute), Spec(size, wide)]


def _widest(dtype: DType) -> DType:
    return np.dtype(np.float64) if dtype.itemsize == 8 else FLOAT32


def _quantize_work(x: Spec, scale: Spec, *, precision: int = 0, **attributes: Any) -> list[Spec]:
    compute = precision_of(scale, precision)
    return _room(x, scale, attributes, compute, _widest(compute))


@kernel("QuantizeLinear", work=_quantize_work)
def quantize_linear(
    xp: Any, x: Array, scale: Array, zero: Array | None = None, *,
    out: Arrays, work: Arrays, axis: int = 1, saturate: int = 1, block_size: int = 0,
    output_dtype: int = 0, precision: int = 0,
) -> None:  # fmt: skip
    """`y = saturate(round(x / scale) + zero)`, halves to even; floats of 8 or 4 bits as they come.

    The quotient has the precision of the scale, or the one asked for.
    """
    types = [w.dtype for w in work]
    for y, source, by, offset in pieces(x, out[0], scale, zero, axis, block_size, types):
        quotient, wide = (w[: y.size].reshape(y.shape) for w in work)
        xp.copyto(quotient, source, casting="unsafe")
        xp.divide(quotient, by, out=quotient)
        xp.copyto(wide, quotient, casting="unsafe")
        if is_integer(y.dtype):
            xp.rint(wide, out=wide)
            if offset is not None:
                wide += offset
            xp.clip(wide, *limits(y.dtype), out=wide)
        elif saturate or y.dtype.itemsize * 8 != ir.DataType.from_numpy(y.dtype).bitwidth:
            xp.clip(wide, *limits(y.dtype), out=wide)
        xp.copyto(y, wide, casting="unsafe")


def _dequantize_work(x: Spec, scale: Spec, **attributes: Any) -> list[Spec]:
    return _room(x, scale, attributes, FLOAT32, _widest(np.dtype(scale.dtype)))[1:]


@kernel("DequantizeLinear", work=_dequantize_work)
def dequantize_linear(
    xp: Any, x: Array, scale: Array, zero: Array | None = None, *,
    out: Arrays, work: Arrays, axis: int = 1, block_size: int = 0, output_dtype: int = 0,
) -> None:  # fmt: skip
    """`y = (x - zero) · scale`."""
    types = [work[0].dtype] * 2
    for y, source, by, offset in pieces(x, out[0], scale, zero, axis, block_size, types):
        wide = work[0][: y.size].reshape(y.shape)
        xp.copyto(wide, source, casting="unsafe")
        if offset is not None:
            wide -= offset
        wide *= by
        xp.copyto(y, wide, casting="unsafe")


@kernel("DynamicQuantizeLinear", temporaries=lambda x: 3 * x.bytes)
def dynamic_quantize_linear(xp: Any, x: Array) -> tuple[Array, Array, int]:
    """`(y, scale, zero)`, with the scale that brings x, and 0, into eight bits."""
    low = xp.minimum(x.min(), 0).astype(FLOAT32)
    high = xp.maximum(x.max(), 0).astype(FLOAT32)
    scale = ((high - low) / FLOAT32.type(255)).astype(FLOAT32)
    scale = xp.where(scale == 0, FLOAT32.type(1), scale)
    zero = xp.rint(xp.clip(-low / scale, 0, 255))
    y = xp.clip(xp.rint(x / scale) + zero, 0, 255).astype(np.uint8)
    return y, scale.reshape(()), zero.astype(np.uint8).reshape(())

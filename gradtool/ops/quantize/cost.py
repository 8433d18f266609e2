"""Quantisation: operations per element, more where there is a zero point."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.ops.costs import cost, counts
from gradtool.ops.shared.element_counts import Results, Shaped, made, result, size


def _rounded(dtype: np.dtype[Any], zero: Any, *, saturate: int = 1) -> int:
    """`clip(round(x / scale) + zero)`; floats are not rounded by an operation of their own."""
    if "int" in dtype.name:
        return 4 + (zero is not None)
    return 3 if saturate else 1


@cost("QuantizeLinear")
def quantize(_: Shaped, __: Shaped, zero: Any = None, *, out: Results, saturate: int = 1) -> int:
    """`clip(round(x / scale) + zero)`."""
    return _rounded(result(out).dtype, zero, saturate=saturate) * made(out)


@cost("DynamicQuantizeLinear")
def dynamic_quantize(x: Shaped) -> int:
    """The extremes of x, scale and zero from them, then `clip(round(x / scale) + zero)`.

    `scale = (max(high, 0) - min(low, 0)) / 255`, `zero = round(clip(-low / scale))`.
    """
    return 7 * size(x) + 9


def _kind(kind: int) -> np.dtype[Any]:
    return np.dtype(ir.DataType(kind).numpy())


@cost("ai.gradtool::FakeQuantize")
def fake_quantize(
    _: Shaped, __: Shaped, zero: Any = None, *, out: Results, kind: int, saturate: int = 1
) -> int:
    """Quantised and back."""
    there = _rounded(_kind(kind), zero, saturate=saturate)
    return (there + 1 + (zero is not None)) * made(out)


def _outside(kind: int, zero: Any) -> int:
    """`round(x / scale) + zero`, compared with both ends of the range."""
    return _rounded(_kind(kind), zero)


@cost("ai.gradtool::FakeQuantizeGrad")
def fake_quantize_grad(x: Shaped, _: Shaped, __: Shaped, zero: Any = None, *, kind: int) -> int:
    """`dy` within the range."""
    return _outside(kind, zero) * size(x)


@cost("ai.gradtool::FakeQuantizeGradScale")
def fake_quantize_grad_scale(
    x: Shaped, _: Shaped, __: Shaped, ___: Shaped, zero: Any = None, *, kind: int
) -> int:
    """`Σ dy · (y - x) / scale` within the range, `Σ dy · y / scale` outside."""
    return (_outside(kind, zero) + 4) * size(x)


@cost("ai.gradtool::DequantizeGradScale")
def dequantize_grad_scale(x: Shaped, _: Shaped, __: Shaped, zero: Any = None) -> int:
    """`Σ dy · (x - zero)`."""
    return (2 + (zero is not None)) * size(x)


def _centred(x: Shaped, zero: Any) -> int:
    return size(x) if zero is not None else 0


@cost("MatMulInteger")
def matmul_integer(
    a: Shaped, b: Shaped, a_zero: Any = None, b_zero: Any = None, *, out: Results
) -> int:
    """`(a - a_zero) @ (b - b_zero)`."""
    return _centred(a, a_zero) + _centred(b, b_zero) + 2 * made(out) * a.shape[-1]


@cost("QLinearMatMul")
def qlinear_matmul(
    a: Shaped, _a_scale: Any, a_zero: Any, b: Shaped, _b_scale: Any, b_zero: Any, *, out: Results
) -> int:
    """The product of centred matrices, scaled three times, then `clip(round(y) + zero)`."""
    return matmul_integer(a, b, a_zero, b_zero, out=out) + 7 * made(out)


@cost("ConvInteger")
def conv_integer(
    x: Shaped, w: Shaped, x_zero: Any = None, w_zero: Any = None, *, out: Results
) -> int:
    """The convolution of `x - x_zero` by `w - w_zero`."""
    product = 2 * made(out) * math.prod(w.shape[1:])
    return _centred(x, x_zero) + _centred(w, w_zero) + product


@cost("QLinearConv")
def qlinear_conv(
    x: Shaped, _x_scale: Any, x_zero: Any, w: Shaped, _w_scale: Any, w_zero: Any, _y_scale: Any,
    _y_zero: Any, bias: Any = None, *, out: Results,
) -> int:  # fmt: skip
    """The convolution of centred integers, plus the bias, scaled twice, `clip(round(y) + zero)`."""
    return conv_integer(x, w, x_zero, w_zero, out=out) + (6 + (bias is not None)) * made(out)


counts({
    # `(x - zero) · scale`
    "DequantizeLinear": lambda _, __, zero=None, *, out: (1 + (zero is not None)) * made(out),
})  # fmt: skip

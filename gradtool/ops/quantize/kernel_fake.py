"""Quantised and back in one step, and its gradients; the gradient of a dequantising scale."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.quantize.kernel_scales import (
    is_integer,
    largest_piece,
    limits,
    parts,
    pieces,
    precision_of,
)
from gradtool.ops.shared.sums import accumulator
from gradtool.ops.shared.types import Array, Arrays, DType


def _work(x: Spec, scale: Spec, *, kind: int, precision: int = 0, **attributes: Any) -> list[Spec]:
    size = (largest_piece(x, scale, **attributes),)
    compute = precision_of(scale, precision)
    steps = np.dtype(ir.DataType(kind).numpy())
    return [Spec(size, compute), Spec(size, accumulator(compute)), Spec(size, steps)]


@kernel("ai.gradtool::FakeQuantize", work=_work)
def fake_quantize(
    xp: Any, x: Array, scale: Array, zero: Array | None = None, *,
    out: Arrays, work: Arrays, kind: int, axis: int = 1, block_size: int = 0, saturate: int = 1,
    precision: int = 0, to: int = 0,
) -> None:  # fmt: skip
    """`(round(x / scale + zero) - zero) · scale`, within the range of the type."""
    number = np.dtype(ir.DataType(kind).numpy())
    types = (None, work[1].dtype)
    for y, source, by, shift in pieces(x, out[0], scale, zero, axis, block_size, types):
        quotient, wide, steps = (w[: y.size].reshape(y.shape) for w in work)
        xp.copyto(quotient, source, casting="unsafe")
        xp.divide(quotient, by.astype(quotient.dtype, copy=False), out=quotient)
        xp.copyto(wide, quotient, casting="unsafe")
        if is_integer(number):
            xp.rint(wide, out=wide)
            if shift is not None:
                wide += shift
        if is_integer(number) or saturate:
            xp.clip(wide, *limits(number), out=wide)
        xp.copyto(steps, wide, casting="unsafe")
        xp.copyto(wide, steps, casting="unsafe")
        if shift is not None:
            wide -= shift
        wide *= by
        xp.copyto(y, wide, casting="unsafe")


def _outside(
    xp: Any, source: Array, by: Array, offset: Array, kind: DType, wide: Array, mask: Array
) -> None:
    """Mask of quotients beyond the range of the type."""
    xp.divide(source, by, out=wide, casting="unsafe")
    if is_integer(kind):
        xp.rint(wide, out=wide)
        if offset is not None:
            wide += offset
    low, high = limits(kind)
    xp.less(wide, low, out=mask)
    mask |= wide > high


def _mask_work(x: Spec, scale: Spec, **attributes: Any) -> list[Spec]:
    size = (largest_piece(x, scale, **attributes),)
    return [Spec(size, accumulator(scale.dtype)), Spec(size, np.dtype(bool))]


def _mask_bytes(x: Spec, scale: Spec, **attributes: Any) -> int:
    return largest_piece(x, scale, **attributes)


@kernel("ai.gradtool::FakeQuantizeGrad", work=_mask_work, temporaries=_mask_bytes)
def fake_quantize_grad(
    xp: Any, x: Array, scale: Array, dy: Array, zero: Array | None = None, *,
    out: Arrays, work: Arrays, kind: int, axis: int = 1, block_size: int = 0,
) -> None:  # fmt: skip
    """`dx = dy` within the range of the type, else 0."""
    number = np.dtype(ir.DataType(kind).numpy())
    both = pieces(x, out[0], scale, zero, axis, block_size)
    slopes = pieces(dy, out[0], scale, None, axis, block_size)
    for (dx, source, by, offset), (_, slope, _, _) in zip(both, slopes, strict=True):
        wide, mask = (w[: dx.size].reshape(dx.shape) for w in work)
        _outside(xp, source, by, offset, number, wide, mask)
        xp.copyto(dx, slope, casting="unsafe")
        xp.copyto(dx, 0, where=mask)


def _sum_bytes(x: Spec, scale: Spec) -> int:
    return 5 * math.prod(x.shape) * accumulator(scale.dtype).itemsize


def _by_group(xp: Any, values: Array, scale: Array, axis: int, block_size: int) -> Array:
    """Sums over the elements of one scale."""
    made = xp.empty(scale.shape, values.dtype)
    for index, shape, of_scale, scales in parts(values, scale, axis, block_size):
        axes = tuple(a for a, n in enumerate(scales) if n == 1)
        total = values[index].reshape(shape).sum(axis=axes)
        made[of_scale] = total.reshape(made[of_scale].shape)
    return made.astype(scale.dtype, copy=False)


@kernel("ai.gradtool::FakeQuantizeGradScale", temporaries=_sum_bytes)
def fake_quantize_grad_scale(
    xp: Any, x: Array, scale: Array, y: Array, dy: Array, zero: Array | None = None, *,
    kind: int, axis: int = 1, block_size: int = 0,
) -> Array:  # fmt: skip
    """`Σ dy · (y - x) / scale` within the range, `Σ dy · y / scale` outside."""
    number = np.dtype(ir.DataType(kind).numpy())
    wide = accumulator(scale.dtype)
    made = xp.empty(x.shape, wide)
    for part, source, by, offset in pieces(x, made, scale, zero, axis, block_size):
        quotient, mask = xp.empty(part.shape, wide), xp.empty(part.shape, bool)
        _outside(xp, source, by, offset, number, quotient, mask)
        xp.copyto(part, source, casting="unsafe")
        xp.copyto(part, 0, where=mask)
    xp.subtract(y, made, out=made)
    made *= dy
    for part, _, by, _ in pieces(x, made, scale, zero, axis, block_size):
        part /= by  # noqa: PLW2901 - in place
    return _by_group(xp, made, scale, axis, block_size)


@kernel("ai.gradtool::DequantizeGradScale", temporaries=_sum_bytes)
def dequantize_grad_scale(
    xp: Any, x: Array, scale: Array, dy: Array, zero: Array | None = None, *,
    axis: int = 1, block_size: int = 0,
) -> Array:  # fmt: skip
    """`Σ dy · (x - zero)`."""
    made = xp.empty(x.shape, accumulator(scale.dtype))
    for part, source, _, offset in pieces(x, made, scale, zero, axis, block_size):
        xp.copyto(part, source, casting="unsafe")
        if offset is not None:
            part -= offset  # noqa: PLW2901 - in place
    made *= dy
    return _by_group(xp, made, scale, axis, block_size)

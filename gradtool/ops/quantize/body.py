"""Composites of the quantize family."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Operand, Tensor


def _rounded(x: Tensor, scale: Tensor, *, to: int = 0) -> Outputs:
    return [(x.shape, ir.DataType(to) if to else scale.dtype)]


@composite("FakeQuantize", shapes=_rounded)
def fake_quantize(
    op: Builder, x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1,
    block_size: int = 0, kind: int = 0, saturate: int = 1, precision: int = 0, to: int = 0,
) -> Tensor:  # fmt: skip
    """`(round(x / scale + zero) - zero) · scale`, saturated: quantised and back."""
    given = {"axis": axis, "block_size": block_size or None}
    q = op.QuantizeLinear(
        x, scale, zero, **given, saturate=None if saturate else 0,
        output_dtype=None if zero is not None or kind == ir.DataType.UINT8 else kind,
        precision=precision or None,
    )  # fmt: skip
    return op.DequantizeLinear(q, scale, zero, **given, output_dtype=to or None)


def spread(op: Builder, scale: Tensor, x: Tensor, axis: int, block_size: int) -> Tensor:
    """A scale, broadcast to x: along an axis, or block by block."""
    if len(scale.shape) == 0 or (len(scale.shape) == 1 and scale.shape[0] == 1 and not block_size):
        return op.Reshape(scale, [1]) if len(scale.shape) else scale
    rank = len(x.shape)
    axis %= rank
    if not block_size:
        return op.Reshape(scale, [-1 if a == axis else 1 for a in range(rank)])
    blocks = op.Unsqueeze(scale, [axis + 1])
    tiled = op.Tile(blocks, [block_size if a == axis + 1 else 1 for a in range(rank + 1)])
    shape: Operand = [0] * axis + [-1]
    if axis + 1 < rank:
        shape = op.Concat(shape, op.size_of(scale, axis + 1, rank), axis=0)
    tiled = op.Reshape(tiled, shape)
    return op.Slice(tiled, [0], op.size_of(x, axis, axis + 1), [axis])


def gather_up(op: Builder, by_element: Tensor, scale: Tensor, axis: int, block_size: int) -> Tensor:
    """Sums over the elements of one scale."""
    rank = len(by_element.shape)
    axis %= max(rank, 1)
    if len(scale.shape) == 0:
        return op.ReduceSum(by_element, keepdims=0)
    if len(scale.shape) == 1 and not block_size:
        if scale.shape[0] == 1:
            return op.Reshape(op.ReduceSum(by_element, keepdims=0), [1])
        by_axis = op.sum(by_element, [a for a in range(rank) if a != axis])
        return op.unbroadcast(by_axis, scale)  # a scale of open size may be one for all
    have = op.size_of(by_element, axis, axis + 1)
    whole = op.Mul(op.size_of(scale, axis, axis + 1), block_size)
    padded = op.pad(by_element, op.Concat([0], op.Sub(whole, have), axis=0), [axis])
    shape = op.Concat(
        *([op.size_of(scale, 0, axis + 1)] if rank else []),
        op.constant([block_size]),
        *([op.size_of(scale, axis + 1, rank)] if axis + 1 < rank else []),
        axis=0,
    )
    return op.ReduceSum(op.Reshape(padded, shape), [axis + 1], keepdims=0)


def _is_inside(
    op: Builder, x: Tensor, scale: Tensor, zero: Tensor | None, kind: ir.DataType, axis: int,
    block_size: int,
) -> Tensor:  # fmt: skip
    """Mask of quotients within the range of the quantised type."""
    v = op.cast(x, scale.dtype) / spread(op, scale, x, axis, block_size)
    bounds = limits(kind)
    if kind.is_integer():
        v = op.Round(v)
        if zero is not None:
            v = v + spread(op, op.cast(zero, scale.dtype), x, axis, block_size)
    low, high = (op.constant(np.asarray(n, scale.dtype.numpy())) for n in bounds)
    return op.And(op.GreaterOrEqual(v, low), op.LessOrEqual(v, high))


def limits(kind: ir.DataType) -> tuple[float, float]:
    """The least and the greatest number of a quantised type."""
    import ml_dtypes

    info = ml_dtypes.iinfo if kind.is_integer() else ml_dtypes.finfo
    found = info(kind.numpy())
    return float(found.min), float(found.max)


@composite("FakeQuantizeGrad", like=0)
def fake_quantize_grad(
    op: Builder, x: Tensor, scale: Tensor, dy: Tensor, zero: Tensor | None = None, *,
    kind: int, axis: int = 1, block_size: int = 0,
) -> Tensor:  # fmt: skip
    """`dx = dy` within the range of the quantised type, else 0."""
    inside = _is_inside(op, x, scale, zero, ir.DataType(kind), axis, block_size)
    return op.Where(inside, op.cast(dy, x.dtype), 0.0)


@composite("FakeQuantizeGradScale", like=1)
def fake_quantize_grad_scale(
    op: Builder, x: Tensor, scale: Tensor, y: Tensor, dy: Tensor, zero: Tensor | None = None, *,
    kind: int, axis: int = 1, block_size: int = 0,
) -> Tensor:  # fmt: skip
    """`dscale = Σ dy · (y - x) / scale` within the range, `Σ dy · y / scale` outside."""
    inside = _is_inside(op, x, scale, zero, ir.DataType(kind), axis, block_size)
    y, dy = op.cast(y, scale.dtype), op.cast(dy, scale.dtype)
    error = y - op.Where(inside, op.cast(x, scale.dtype), 0.0)
    by_element = dy * error / spread(op, scale, x, axis, block_size)
    return gather_up(op, by_element, scale, axis, block_size)


@composite("DequantizeGradScale", like=1)
def dequantize_grad_scale(
    op: Builder, x: Tensor, scale: Tensor, dy: Tensor, zero: Tensor | None = None, *,
    axis: int = 1, block_size: int = 0,
) -> Tensor:  # fmt: skip
    """`dscale = Σ dy · (x - zero)`."""
    one = op.ConstantOfShape(op.shape(scale), value=np.ones(1, scale.dtype.numpy()))
    steps = op.DequantizeLinear(x, one, zero, axis=axis, block_size=block_size or None)
    by_element = op.cast(dy, scale.dtype) * steps
    return gather_up(op, by_element, scale, axis, block_size)

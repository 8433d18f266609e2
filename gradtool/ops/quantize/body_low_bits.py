"""Products with matrices of few bits, and the decoding of these, in standard operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Dim, Tensor, ints
from gradtool.operators.low_bits import middle, shifts, table

BLOCKS, HALVES = 21, 19  # opsets from which DequantizeLinear goes by block, and makes halves
MATRIX = 2  # axes
BYTE = ir.DataType.UINT8


def unpacked(op: Builder, packed: Tensor, bits: int, values: str = "") -> Tensor:
    """Codes one a byte: `[…, n]` becomes `[…, n · 8 / bits]`."""
    if bits == 8:
        return packed
    places = np.asarray(shifts(bits, values), np.uint8)
    codes = op.BitShift(op.unsqueeze(packed, len(packed.shape)), places, direction="RIGHT")
    codes = op.BitwiseAnd(codes, np.asarray((1 << bits) - 1, np.uint8))
    *lead, last = packed.shape
    assert isinstance(last, int)  # noqa: S101 - bytes of a row are known
    return op.reshape(codes, [*lead, last * len(places)])


def dequantized(
    op: Builder, codes: Tensor, scale: Tensor, zero: Tensor | None, *,
    block_size: int, size: int, middle: int, axis: int,
) -> Tensor:  # fmt: skip
    """`(code - zero) · scale` of codes one a byte, by block of an axis, which is cropped to `size`.

    Along the axis, scale and zero have one element a block; `middle` is the zero where none is.
    """
    (lead, blocks, rest), have = _around(scale, axis), _around(codes, axis)[1]
    by_row = blocks == 1 and len(codes.shape) == MATRIX
    if len(codes.shape) > 1 and _has_operator(op, scale, zero, by_block=not by_row):
        if zero is None:
            zero = op.ConstantOfShape(op.shape(scale), value=np.full(1, middle, np.uint8))
        codes = op.crop(codes, [size], [axis])
        if not by_row:
            return op.DequantizeLinear(codes, scale, zero, axis=axis, block_size=block_size)
        scale, zero = op.reshape(scale, [-1]), op.reshape(zero, [-1])
        return op.DequantizeLinear(codes, scale, zero, axis=1 - axis)
    if have < blocks * block_size:
        codes = op.pad(codes, [0, blocks * block_size - have], [axis])
    wide = op.reshape(op.cast(codes, scale.dtype), [*lead, blocks, block_size, *rest])
    offset: Any = middle if zero is None else op.unsqueeze(op.cast(zero, scale.dtype), axis + 1)
    wide = op.Mul(op.Sub(wide, offset), op.unsqueeze(scale, axis + 1))
    return op.crop(op.reshape(wide, [*lead, blocks * block_size, *rest]), [size], [axis])


def _has_operator(op: Builder, scale: Tensor, zero: Tensor | None, *, by_block: bool) -> bool:
    """Whether DequantizeLinear of the builder's opset takes such scales and zero points."""
    since = BLOCKS if by_block else HALVES if scale.dtype != ir.DataType.FLOAT else 0
    whole = zero is None or zero.dtype == BYTE
    return whole and op.opset >= since and scale.dtype != ir.DataType.DOUBLE


def _around(value: Tensor, axis: int) -> tuple[list[Dim], int, list[Dim]]:
    """The sizes before an axis, its own known size, and those behind it."""
    sizes = list(value.shape)
    (here,) = ints(sizes[axis : axis + 1])
    return sizes[:axis], here, sizes[axis + 1 :]


def decoded(
    op: Builder, codes: Tensor, scale: Tensor, zero: Tensor | None, groups: Tensor | None, *,
    bits: int, block_size: int, size: int, values: str = "",
) -> Tensor:  # fmt: skip
    """The matrix `[rows, size]` of `QuantizedMatMul`."""
    rows, (blocks, _) = codes.shape[0], ints(codes.shape[1:])
    whole = op.reshape(unpacked(op, codes, bits, values), [rows, blocks * block_size])
    if zero is not None and zero.dtype == BYTE:
        zero = op.crop(unpacked(op, zero, bits), [blocks], [1])
    if values:
        found = op.Gather(table(values, scale.dtype.numpy()), op.cast(whole, ir.DataType.INT32))
        by_block = op.reshape(found, [rows, blocks, block_size]) * op.unsqueeze(scale, 2)
        return op.crop(op.reshape(by_block, [rows, blocks * block_size]), [size], [1])
    if groups is None:
        return dequantized(
            op, whole, scale, zero, block_size=block_size, size=size, middle=middle(bits), axis=1
        )
    wide = op.cast(op.crop(whole, [size], [1]), scale.dtype)
    offset: Any = middle(bits)
    if zero is not None:
        offset = op.Gather(op.cast(zero, scale.dtype), groups, axis=1)
    return op.Mul(op.Sub(wide, offset), op.Gather(scale, groups, axis=1))


def _product_shape(
    x: Tensor, codes: Tensor, *_: Tensor | None, size: int, turned: int = 1, **__: Any
) -> Outputs:
    have, needed = x.shape[-1], size if turned else codes.shape[0]
    if isinstance(have, int) and have != needed:
        raise ValueError(f"an input of {have} columns for a matrix of {needed}")
    return [([*x.shape[:-1], codes.shape[0] if turned else size], x.dtype)]


@composite("QuantizedMatMul", shapes=_product_shape)
def quantized_matmul(
    op: Builder, x: Tensor, codes: Tensor, scale: Tensor, zero: Tensor | None = None,
    groups: Tensor | None = None, *, bits: int, block_size: int, size: int, turned: int = 1,
    values: str = "",
) -> Tensor:  # fmt: skip
    """`y = x Wᵀ` (not `turned`: `x W`) of a matrix W `[rows, size]` of few bits.

    Codes are `[rows, blocks, bytes]` as `gradtool.operators.low_bits` says, `scale`
    `[rows, blocks]`, `zero` the same in floats, or packed as codes are, bytes of a row; `groups`
    `[size]` has the block of each column.  With `values`, codes are places of that table.
    """
    w = decoded(
        op, codes, scale, zero, groups, bits=bits, block_size=block_size, size=size, values=values
    )  # fmt: skip
    return op.MatMul(x, op.transpose(w, [1, 0]) if turned else w)

"""Products with matrices of few bits, and rows of tables of few bits, of com.microsoft.

Products become `QuantizedMatMul`, which decodes a block at a time; `accuracy_level` is a permission
of which no use is made: products are of floats.  Of a table the rows looked up are decoded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool import io
from gradtool.operators.low_bits import BITS, TABLES, middle
from gradtool.ops.quantize.body_low_bits import dequantized, unpacked
from gradtool.passes._contrib_attention import refused
from gradtool.passes._contrib_dense import inputs_of
from gradtool.passes.fuse_low_bits import is_absent
from gradtool.passes.parameters import SCALE

BYTE, FOUR = ir.DataType.UINT8, (ir.DataType.INT4, ir.DataType.UINT4)
FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def _shaped(op: Any, node: Any, value: Any, shape: Sequence[int], what: str) -> Any:
    """A tensor in this shape, as older files have it flat.

    Raises:
        ModelError: it has other sizes.
    """
    if value is None:
        return None
    sizes = list(value.shape)
    if not all(isinstance(n, int) for n in sizes) or math.prod(sizes) != math.prod(shape):
        raise refused(node, f"{what} {value.name!r} of shape {sizes} in place of {list(shape)}")
    return op.reshape(value, shape)


def matmul_nbits(op: Any, node: Any) -> Sequence[Any]:
    """`x Wᵀ + bias` of W `[N, K]` in blocks of K."""
    x, codes, scale, zero, groups, bias = inputs_of(node, 6)
    given = node.attributes
    n, k, size = (given.get_int(name, 0) for name in ("N", "K", "block_size"))
    bits = given.get_int("bits", 4)
    if bits not in BITS:
        raise refused(node, f"bits = {bits}")
    if given.get_int("weight_prepacked", 0):
        raise refused(node, f"weight_prepacked = {given.get_int('weight_prepacked')}")
    if min(n, k, size) < 1:
        raise refused(node, f"N = {n}, K = {k}, block_size = {size}")
    blocks = -(-k // size)
    if zero is not None:
        packed = -(-blocks * bits // 8) if zero.dtype == BYTE else blocks
        zero = _shaped(op, node, zero, [n, packed], "zero points")
    scale.meta[SCALE] = True
    y = op.QuantizedMatMul(
        x, _shaped(op, node, codes, [n, blocks, size * bits // 8], "a weight"),
        _shaped(op, node, scale, [n, blocks], "scales"), zero,
        None if groups is None else _groups(op, node, groups, k, blocks),
        bits=bits, block_size=size, size=k,
    )  # fmt: skip
    return [y if bias is None else op.Add(y, bias)]


def _groups(op: Any, node: Any, groups: Any, k: int, blocks: int) -> Any:
    """The block of each column, read so far that a wrong number is refused."""
    groups = _shaped(op, node, groups, [k], "g_idx")
    if is_absent(groups):
        return groups
    known = io.array(groups.const_value)
    if not ((known >= 0) & (known < blocks)).all():
        raise refused(node, f"g_idx {groups.name!r} with numbers beyond {blocks} blocks")
    return groups


def matmul_bnb4(op: Any, node: Any) -> Sequence[Any]:
    """`x Wᵀ`, or with `transB` 0 `x W`, of W `[N, K]` in blocks of all its numbers in a row."""
    x, codes, scale = node.inputs
    given = node.attributes
    n, k, size = (given.get_int(name, 0) for name in ("N", "K", "block_size"))
    kind = given.get_int("quant_type", 0)
    if kind not in range(len(TABLES)) or min(n, k, size) < 1:
        raise refused(node, f"quant_type = {kind}, N = {n}, K = {k}, block_size = {size}")
    if k % 2 or size % 2:
        raise refused(node, f"rows of an odd number of codes, K = {k}")
    scale.meta[SCALE] = True
    scale = _shaped(op, node, scale, [-(-n * k // size)], "absmax")
    step = math.gcd(k, size)
    if step < size:  # a block crosses rows: parts of it have the scale of the whole
        scale = op.Gather(scale, np.arange(0, n * k, step) // size)
    y = op.QuantizedMatMul(
        x, _shaped(op, node, codes, [n, k // step, step // 2], "a weight"),
        op.reshape(scale, [n, k // step]), None, None,
        bits=4, block_size=step, size=k, turned=given.get_int("transB", 1),
        values=list(TABLES)[kind],
    )  # fmt: skip
    return [y]


def gather_block_quantized(op: Any, node: Any) -> Sequence[Any]:
    """`Gather` of a table `(code - zero) · scale`, decoded by looked-up rows."""
    data, indices, scale, zero = inputs_of(node, 4)
    given, rank = node.attributes, len(data.shape)
    bits = given.get_int("bits", 4) if data.dtype == BYTE else 4
    axis, along = (given.get_int(f"{name}_axis", default) % rank
                   for name, default in (("gather", 0), ("quantize", 1)))  # fmt: skip
    size = given.get_int("block_size", 128)
    if data.dtype not in (BYTE, *FOUR):
        raise refused(node, f"a table of {data.dtype}")
    if bits not in BITS or size < 1 or axis == along:
        raise refused(node, f"bits = {bits}, block_size = {size}, both axes {axis}")
    default = 0 if data.dtype == ir.DataType.UINT4 else middle(bits)
    if data.dtype != BYTE:
        alone = axis == rank - 1 or data.shape[-1] % 2
        data, bits = (_lone(op, node, data), 8) if alone else (_bytes(op, node, data), 4)
        zero = None if zero is None else _lone(op, node, zero)
    elif zero is not None:
        zero = op.crop(unpacked(op, zero, bits), [scale.shape[-1]], [rank - 1])
    scale.meta[SCALE] = True
    wide = data.shape[along] * (8 // bits if along == rank - 1 else 1)
    rows, scale = (op.Gather(v, indices, axis=axis) for v in (data, scale))
    zero = None if zero is None else op.Gather(zero, indices, axis=axis)
    place = along + (len(indices.shape) - 1 if axis < along else 0)
    found = dequantized(
        op, unpacked(op, rows, bits), scale, zero,
        block_size=size, size=wide, middle=default, axis=place,
    )  # fmt: skip
    return [found]


def _bytes(op: Any, node: Any, value: Any) -> Any:
    """The bytes of a tensor of 4 bits, of rows of whole bytes; a signed code c is c + 8."""
    *lead, last = value.shape
    return _stored(op, node, value, [*lead, last // 2], _packed)


def _lone(op: Any, node: Any, value: Any) -> Any:
    """The codes of a tensor of 4 bits, each a byte; a signed code c is c + 8."""
    return _stored(op, node, value, list(value.shape), _alone)


def _packed(tensor: ir.TensorProtocol) -> Any:
    found = np.frombuffer(tensor.tobytes(), np.uint8)
    return found ^ np.uint8(0x88) if tensor.dtype == ir.DataType.INT4 else found


def _alone(tensor: ir.TensorProtocol) -> Any:
    found = io.array(tensor).astype(np.int8)
    return (found + np.int8(8) if tensor.dtype == ir.DataType.INT4 else found).astype(np.uint8)


def _stored(
    op: Any, node: Any, value: Any, shape: list[int], read: Callable[[ir.TensorProtocol], Any]
) -> Any:
    """A new initializer of bytes, made of one of 4 bits when it is asked for."""
    tensor = value.const_value
    if not value.is_initializer() or tensor is None:
        raise refused(node, f"{value.name!r} of {value.dtype} that is no initializer")
    name = op.names.fresh(f"{value.name}.bytes")
    make: Callable[[], Any] = partial(_tensor, tensor, shape, read)
    return op.initializer(ir.LazyTensor(make, dtype=BYTE, shape=ir.Shape(shape), name=name))


def _tensor(
    tensor: ir.TensorProtocol, shape: list[int], read: Callable[[ir.TensorProtocol], Any]
) -> ir.Tensor[Any]:
    return ir.Tensor(read(tensor).reshape(shape))


CONTRIB = {
    "GatherBlockQuantized": gather_block_quantized,
    "MatMulBnb4": matmul_bnb4,
    "MatMulNBits": matmul_nbits,
}

"""Products with a matrix that DequantizeLinear decodes by block, as `QuantizedMatMul`.

The codes of a constant matrix are packed anew, in rows along the axis that is summed over: then no
decoded matrix is held, neither whole nor from forward to backward.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool import io
from gradtool.emit.builder import Builder
from gradtool.graph.prune import prune
from gradtool.graph.typed import Tensor, as_tensor
from gradtool.operators.low_bits import middle
from gradtool.passes.training_forms import stand_in

BITS = {
    ir.DataType.INT4: 4, ir.DataType.UINT4: 4, ir.DataType.INT8: 8, ir.DataType.UINT8: 8,
    ir.DataType.INT2: 2, ir.DataType.UINT2: 2,
}  # fmt: skip
SIGNED = (ir.DataType.INT2, ir.DataType.INT4, ir.DataType.INT8)
PRODUCTS = ("Gemm", "MatMul")
ROWS = 256  # that are packed at a time
CODES = "gradtool.codes"  # in the meta of packed codes: the name in the file, and `by_column`
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Matrix:
    """A matrix of constants, dequantised by blocks of `size`; `by_column`: as [K, N]."""

    codes: Tensor
    scale: Tensor
    zero: Tensor | None
    size: int
    by_column: bool

    @property
    def bits(self) -> int:
        """The bits of a code."""
        return BITS[self.codes.dtype]


def fuse_low_bits(op: Builder, trained: Collection[str]) -> int:
    """Replace them in place, but where a scale is `trained`; returns how many there were."""
    found = [(n, m) for n in op.model.graph if (m := _matrix(n, trained)) is not None]
    made: dict[_Matrix, list[Any]] = {}
    for node, matrix in found:
        with op.at(node, stage="forward", source="", prefix=node.name or ""), op.arithmetic():
            if matrix not in made:
                made[matrix] = _operands(op, matrix)
            product = _product(op, node, matrix, made[matrix])
        stand_in((product,), node)
    if found:
        prune(op.model, spare=False)
    return len(found)


def _matrix(node: ir.Node, trained: Collection[str]) -> _Matrix | None:
    """The matrix of a product that can be replaced."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in PRODUCTS:
        return None
    given = node.attributes
    if given.get_int("transA", 0) or given.get_float("alpha", 1.0) != 1:
        return None
    by_column = not given.get_int("transB", 0)
    value = node.inputs[1]
    source = None if value is None else value.producer()
    while source is not None and source.op_type == "Transpose" and not source.domain:
        if tuple(source.attributes.get_ints("perm", (1, 0))) == (1, 0):
            by_column = not by_column
        value = source.inputs[0]
        source = None if value is None else value.producer()
    if source is None or source.op_type != "DequantizeLinear" or source.domain:
        return None
    return _constants(source, trained, by_column=by_column)


def _constants(node: ir.Node, trained: Collection[str], *, by_column: bool) -> _Matrix | None:
    """The constants of a DequantizeLinear, if they are of few bits, and not trained."""
    held = [v for v in node.inputs if v is not None]
    if any(is_absent(v) or v.is_graph_input() or v.name in trained for v in held):
        return None
    codes, scale, *rest = map(as_tensor, held)
    given = node.attributes
    size = given.get_int("block_size", 0)
    if codes.dtype not in BITS or len(codes.shape) != 2 or not size:
        return None
    if given.get_int("output_dtype", 0) or size * BITS[codes.dtype] % 8:
        return None
    if given.get_int("axis", 1) % 2 != (0 if by_column else 1):
        return None
    return _Matrix(codes, scale, rest[0] if rest else None, size, by_column)


def is_absent(value: ir.Value) -> bool:
    """Whether the numbers of a constant are not there: it is none, or its file is gone."""
    return value.const_value is None or bool(getattr(value.const_value, "absent", False))


def _operands(op: Builder, matrix: _Matrix) -> list[Any]:
    """Codes `[N, blocks, bytes]`, scale and zero `[N, blocks]`, as new constants."""
    k, n = matrix.codes.shape.numpy() if matrix.by_column else matrix.codes.shape.numpy()[::-1]
    blocks = -(-k // matrix.size)
    scale: ir.Value = matrix.scale
    zero = matrix.zero
    bytes_of = -(-blocks * matrix.bits // 8)
    packed = [n, blocks, matrix.size * matrix.bits // 8]
    made = [_constant(op, matrix.codes, packed, ir.DataType.UINT8, partial(_packed, matrix))]
    made[0].meta[CODES] = matrix.codes.name, matrix.by_column
    if matrix.by_column:
        scale = _constant(op, scale, [n, blocks], scale.dtype, partial(_rows, matrix, scale))
    made.append(scale)
    if zero is not None or matrix.codes.dtype not in SIGNED:
        like = matrix.codes if zero is None else zero
        read = partial(_packed_zeros, matrix, (n, blocks))
        made.append(_constant(op, like, [n, bytes_of], ir.DataType.UINT8, read))
    return made


def _constant(
    op: Builder, like: ir.Value, shape: list[int], dtype: ir.DataType | None,
    read: Callable[[], Array],
) -> ir.Value:  # fmt: skip
    """An initializer that is computed when it is asked for."""
    assert dtype is not None  # noqa: S101 - of an initializer
    name = op.names.fresh(f"{like.name}.rows")

    def make() -> ir.Tensor[Any]:
        return ir.Tensor(np.ascontiguousarray(read()).reshape(shape), dtype=dtype)

    sizes = ir.Shape(shape)
    tensor = ir.LazyTensor(make, dtype=dtype, shape=sizes, name=name)
    made = ir.Value(name=name, shape=sizes, type=ir.TensorType(dtype), const_value=tensor)
    op.root.register_initializer(made)
    return made


def _numbers(value: ir.Value) -> Array:
    assert value.const_value is not None  # noqa: S101 - a constant
    return io.array(value.const_value)


def _rows(matrix: _Matrix, value: ir.Value) -> Array:
    found = _numbers(value)
    return found.T if matrix.by_column else found


def _packed(matrix: _Matrix) -> Array:
    codes = _rows(matrix, matrix.codes)
    return _in_bytes(codes, codes.shape[1] + -codes.shape[1] % matrix.size, matrix)


def _packed_zeros(matrix: _Matrix, shape: tuple[int, int]) -> Array:
    if matrix.zero is None:
        return np.zeros((shape[0], -(-shape[1] * matrix.bits // 8)), np.uint8)
    codes, each = _rows(matrix, matrix.zero), 8 // matrix.bits
    return _in_bytes(codes, codes.shape[1] + -codes.shape[1] % each, matrix)


def _in_bytes(codes: Array, width: int, matrix: _Matrix) -> Array:
    """Codes packed in rows of `width`, a few at a time; signed ones moved by half their range."""
    bits, signed = matrix.bits, matrix.codes.dtype in SIGNED
    packed = np.empty((len(codes), width * bits // 8), np.uint8)
    for first in range(0, len(codes), ROWS):
        part = codes[first : first + ROWS]
        whole = np.zeros((len(part), width), np.uint8)
        moved = part.astype(np.int16) + (middle(bits) if signed else 0)
        whole[:, : part.shape[1]] = moved.astype(np.uint8)
        to = packed[first : first + ROWS]
        to.fill(0)
        for at in range(8 // bits):
            to |= whole[:, at :: 8 // bits] << np.uint8(at * bits)
    return packed


def _product(op: Builder, node: ir.Node, matrix: _Matrix, held: list[Any]) -> Any:
    """`x Wᵀ`, plus what a Gemm adds."""
    k = matrix.codes.shape.numpy()[0 if matrix.by_column else 1]
    y = op.QuantizedMatMul(node.inputs[0], *held, bits=matrix.bits, block_size=matrix.size, size=k)
    beta = node.attributes.get_float("beta", 1.0)
    added = node.inputs[2] if len(node.inputs) > 2 else None
    if node.op_type == "MatMul" or added is None or beta == 0:
        return y
    return op.Add(y, added if beta == 1 else op.Mul(as_tensor(added), beta))

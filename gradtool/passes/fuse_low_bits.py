"""Products with a constant matrix that DequantizeLinear decodes, as `QuantizedMatMul`.

Its codes are packed anew, in rows of numbers with a common scale, or with some for each block of
them: then no decoded matrix is held, neither whole nor from forward to backward.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool import io
from gradtool.emit.builder import Builder
from gradtool.graph.attributes import arguments
from gradtool.graph.predicates import is_scalar, made_by
from gradtool.graph.prune import prune
from gradtool.graph.typed import Tensor, as_tensor, ints
from gradtool.operators.low_bits import middle
from gradtool.ops.quantize.body_low_bits import dequantized, unpacked
from gradtool.passes.integer_products import SCALED
from gradtool.passes.training_forms import stand_in

BITS = {
    ir.DataType.INT4: 4, ir.DataType.UINT4: 4, ir.DataType.INT8: 8, ir.DataType.UINT8: 8,
    ir.DataType.INT2: 2, ir.DataType.UINT2: 2,
}  # fmt: skip
SIGNED = (ir.DataType.INT2, ir.DataType.INT4, ir.DataType.INT8)
PRODUCTS = ("Gemm", "MatMul")
ROWS = 256  # that are packed at a time
MATRIX, BYTE = 2, 8  # axes, bits
ALIGNED = 16  # of which blocks are multiples
# In the meta of packed codes: the name in the file, and `moved`; of codes in products of integers.
CODES, WHOLE = "gradtool.codes", "gradtool.whole_numbers"
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Matrix:
    """A matrix of constants, dequantised by blocks of `size` along an axis.

    Packed, its rows are along that axis; the product is `x Wᵀ` of it if it is `turned`, else `x W`.
    """

    codes: Tensor
    scale: Tensor
    zero: Tensor | None
    size: int
    axis: int
    turned: bool

    @property
    def bits(self) -> int:
        """The bits of a code."""
        return BITS[self.codes.dtype]

    @property
    def moved(self) -> bool:
        """Whether packing exchanges its axes."""
        return self.axis == 0

    @property
    def sizes(self) -> tuple[int, int]:
        """Packed rows and columns."""
        rows, columns = ints(self.codes.shape)[:: -1 if self.moved else 1]
        return rows, columns

    @property
    def blocks(self) -> int:
        """The blocks of a row."""
        return -(-self.sizes[1] // self.size)


_Made = dict[_Matrix, list[Any]]  # operands by matrix


def fuse_low_bits(op: Builder, trained: Collection[str]) -> int:
    """Replace them in place, but where a scale is `trained`; returns how many there were.

    Rows that a Gather takes of a dequantised table are decoded after they are looked up.
    """
    made: _Made = {}
    count = 0
    rules: Sequence[tuple[Callable[..., Any], Callable[..., Tensor | None]]] = (
        (_matrix, _product), (_table, _looked_up),
    )  # fmt: skip
    for find, emit in rules:
        for node in list(op.model.graph):
            found = find(node, trained)
            if found is None:
                continue
            with op.at(node, stage="forward", source="", prefix=node.name or ""), op.arithmetic():
                result = emit(op, node, found, made)
            if result is not None:
                stand_in((result,), node)
                count += 1
    if count:
        prune(op.model, spare=False)
    return count


def _matrix(node: ir.Node, trained: Collection[str]) -> _Matrix | None:
    """The matrix of a product that can be replaced."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in PRODUCTS:
        return None
    summed = bool(node.attributes.get_int("transB", 0))
    value = node.inputs[1]
    source = None if value is None else value.producer()
    while source is not None and source.op_type == "Transpose" and not source.domain:
        if tuple(source.attributes.get_ints("perm", (1, 0))) == (1, 0):
            summed = not summed
        value = source.inputs[0]
        source = None if value is None else value.producer()
    if source is None or source.op_type != "DequantizeLinear" or source.domain:
        return None
    return _constants(source, trained, summed=summed)


def _constants(node: ir.Node, trained: Collection[str], *, summed: bool) -> _Matrix | None:
    """The constants of a DequantizeLinear, if they are of few bits, and not trained.

    A product sums over its last axis, if that is `summed`, else over the first.
    """
    if not are_frozen(node.inputs, trained) or node.attributes.get_int("output_dtype", 0) > 0:
        return None
    codes, scale, *rest = (_stored(v) for v in node.inputs if v is not None)
    if codes.dtype not in BITS or len(codes.shape) != MATRIX or 0 in codes.shape:
        return None
    axis, size = node.attributes.get_int("axis", 1) % 2, node.attributes.get_int("block_size", 0)
    needed = list(ints(codes.shape))
    if size:
        needed[axis] = -(-needed[axis] // size)
    else:
        needed = [] if is_scalar(scale) else [needed[axis]]
        axis = int(summed) if is_scalar(scale) else 1 - axis
        (size,) = ints(codes.shape[axis : axis + 1])
        size += -size % ALIGNED
    fits = all(list(v.shape) in (needed, needed or [1]) for v in (scale, *rest))
    if not fits or size * BITS[codes.dtype] % 8:
        return None
    return _Matrix(codes, scale, rest[0] if rest else None, size, axis, axis == summed)


def _stored(value: ir.Value) -> Tensor:
    """A constant under the name that it has in the file."""
    while (copy := made_by("Identity", value)) is not None and copy.inputs[0] is not None:
        value = copy.inputs[0]
    return as_tensor(value)


def are_frozen(values: Iterable[ir.Value | None], trained: Collection[str]) -> bool:
    """Whether these are constants of known numbers, of which none is trained."""
    held = [v for v in values if v is not None]
    return not any(is_absent(v) or v.is_graph_input() or v.name in trained for v in held)


def is_absent(value: ir.Value) -> bool:
    """Whether the numbers of a constant are not there: it is none, or its file is gone."""
    return value.const_value is None or bool(getattr(value.const_value, "absent", False))


def _table(node: ir.Node, trained: Collection[str]) -> ir.Node | None:
    """The DequantizeLinear of a frozen table that a Gather looks up."""
    if node.op_type != "Gather" or node.domain:
        return None
    data, indices = node.inputs
    source = None if data is None else data.producer()
    if source is None or source.op_type != "DequantizeLinear" or source.domain:
        return None
    known = indices is not None and indices.shape is not None
    return source if known and are_frozen(source.inputs, trained) else None


def _operands(op: Builder, matrix: _Matrix, made: _Made) -> list[Any]:
    """The operands of a matrix, before whatever reads them."""
    if matrix not in made:
        with op.at(op.model.graph[0], stage="forward", source="", prefix=matrix.codes.name or ""):
            made[matrix] = _packed_operands(op, matrix)
    return made[matrix]


def _packed_operands(op: Builder, matrix: _Matrix) -> list[Any]:
    """Codes `[rows, blocks, bytes]`, scale and zero `[rows, blocks]`, new constants if need be."""
    rows, columns = matrix.sizes
    blocks, bits = matrix.blocks, matrix.bits
    scale: ir.Value = matrix.scale
    zero = matrix.zero
    packed = [rows, blocks, matrix.size * bits // 8]
    if matrix.codes.dtype == ir.DataType.UINT8 and not matrix.moved and not columns % matrix.size:
        made: list[Any] = [op.reshape(matrix.codes, packed)]
    else:
        made = [_constant(op, matrix.codes, packed, ir.DataType.UINT8, partial(_packed, matrix))]
        made[0].meta[CODES] = matrix.codes.name, matrix.moved
        made[0].meta[WHOLE] = WHOLE in matrix.codes.meta
        made[0].meta[SCALED] = matrix.codes.meta.get(SCALED)
    if matrix.moved or list(matrix.scale.shape) != [rows, blocks]:
        scale = _constant(op, scale, [rows, blocks], scale.dtype, partial(_by_row, matrix, scale))
    made.append(scale)
    if zero is not None or matrix.codes.dtype not in SIGNED:
        like = matrix.codes if zero is None else zero
        read = partial(_packed_zeros, matrix)
        shape = [rows, -(-blocks * bits // 8)]
        made.append(_constant(op, like, shape, ir.DataType.UINT8, read))
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


def _by_row(matrix: _Matrix, value: ir.Value) -> Array:
    """The numbers of a matrix like the codes, or of scales or zero points, by packed row."""
    found = _numbers(value)
    if found.ndim == 2:
        return found.T if matrix.moved else found
    return np.broadcast_to(found.reshape(-1, 1), (matrix.sizes[0], 1))


def _packed(matrix: _Matrix) -> Array:
    return _in_bytes(_by_row(matrix, matrix.codes), matrix.blocks * matrix.size, matrix)


def _packed_zeros(matrix: _Matrix) -> Array:
    each = 8 // matrix.bits
    width = matrix.blocks + -matrix.blocks % each
    if matrix.zero is None:
        return np.zeros((matrix.sizes[0], width // each), np.uint8)
    return _in_bytes(_by_row(matrix, matrix.zero), width, matrix)


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


def _product(op: Builder, node: ir.Node, matrix: _Matrix, made: _Made) -> Tensor:
    """`alpha · x W`, plus what a Gemm adds."""
    held = _operands(op, matrix, made)
    given, x = node.attributes, node.inputs[0]
    if given.get_int("transA", 0):
        x = op.Transpose(x, perm=[1, 0])
    y: Tensor = op.QuantizedMatMul(
        x, *held, bits=matrix.bits, block_size=matrix.size, size=matrix.sizes[1],
        turned=int(matrix.turned),
    )  # fmt: skip
    alpha, beta = (given.get_float(name, 1.0) for name in ("alpha", "beta"))
    y = y if alpha == 1 else op.Mul(y, alpha)
    added = node.inputs[2] if len(node.inputs) > 2 else None
    if node.op_type == "MatMul" or added is None or beta == 0:
        return y
    return op.Add(y, added if beta == 1 else op.Mul(as_tensor(added), beta))


def _looked_up(op: Builder, node: ir.Node, source: ir.Node, made: _Made) -> Tensor | None:
    """Rows of a dequantised table; None where blocks go along the axis of the rows.

    Codes of less than a byte, which the standard cannot look up, have to have scales by row.
    """
    data, scale, *zero = (as_tensor(v) for v in source.inputs if v is not None)
    indices, rank = as_tensor(node.inputs[1]), len(data.shape)
    axis = node.attributes.get_int("axis", 0) % rank
    matrix = _constants(source, (), summed=True) if axis == 0 else None
    packs = matrix is not None and not matrix.moved and (matrix in made or matrix.bits < BYTE)
    by_block = source.attributes.get_int("block_size", 0) > 0
    along = not is_scalar(scale) and source.attributes.get_int("axis", 1) % rank == axis
    if not packs and (BITS.get(data.dtype, 0) < BYTE or (by_block and along)):
        return None
    flat = op.reshape(indices, [-1]) if len(indices.shape) != 1 else indices
    if matrix is not None and packs:
        rows = _rows_of_codes(op, matrix, made, flat)
    else:
        factors = [scale, *zero]
        if by_block or along:
            factors = [op.Gather(v, flat, axis=axis if by_block else 0) for v in factors]
        rows = op.DequantizeLinear(op.Gather(data, flat, axis=axis), *factors, **arguments(source))
    sizes = list(data.shape)
    return op.reshape(rows, [*sizes[:axis], *indices.shape, *sizes[axis + 1 :]])


def _rows_of_codes(op: Builder, matrix: _Matrix, made: _Made, places: Tensor) -> Tensor:
    """Rows `[places, columns]` of a packed matrix."""
    codes, *factors = _operands(op, matrix, made)
    (count, columns), bits = matrix.sizes, matrix.bits
    codes = op.Gather(op.reshape(codes, [count, matrix.blocks * matrix.size * bits // 8]), places)
    scale, *zero = (op.Gather(v, places) for v in factors)
    offset = op.crop(unpacked(op, zero[0], bits), [matrix.blocks], [1]) if zero else None
    return dequantized(
        op, unpacked(op, codes, bits), scale, offset,
        block_size=matrix.size, size=columns, middle=middle(bits), axis=1,
    )  # fmt: skip

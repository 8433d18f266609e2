"""Accumulation in standard operators.

Always through ScatterElements: where indices repeat, ScatterND with a reduction loses terms in
onnxruntime, whose threads add to the same row without a lock.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.constants import integers
from gradtool.graph.typed import Tensor

HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def zeros(op: Builder, shape: Tensor, dtype: ir.DataType) -> Tensor:
    return op.ConstantOfShape(shape, value=np.zeros(1, dtype.numpy()))


def count(op: Builder, shape: Tensor) -> Tensor:
    """The number of elements of a tensor of `shape`, a scalar."""
    known = integers(shape)
    return op.ReduceProd(shape, keepdims=0) if known is None else op.constant(math.prod(known))


def vector(op: Builder, scalar: Tensor) -> Tensor:
    """A scalar as a vector of one element."""
    known = integers(scalar)
    return op.Unsqueeze(scalar, [0]) if known is None else op.constant(known)


def positions(op: Builder, shape: Tensor) -> Tensor:
    """A tensor of `shape` that holds the flat position of each of its elements."""
    return op.Reshape(
        op.Range(op.constant(0), count(op, shape), op.constant(1)), shape, allowzero=1
    )


def add_elements(op: Builder, dy: Tensor, indices: Tensor, shape: Tensor, axis: int) -> Tensor:
    """`dx[i, indices[i, j, k], k] += dy[i, j, k]` if axis is 1, onto zeros of `shape`.

    Half precision is summed in float32.
    """
    wide = ir.DataType.FLOAT if dy.dtype in HALF else dy.dtype
    dx = op.ScatterElements(
        zeros(op, shape, wide), indices, op.cast(dy, wide), axis=axis, reduction="add"
    )
    return op.cast(dx, dy.dtype)


def add_onto(op: Builder, x: Tensor, dy: Tensor, indices: Tensor, axis: int) -> Tensor:
    """`x[i, indices[i, j, k], k] += dy[i, j, k]` if axis is 1; half precision as float32."""
    wide = ir.DataType.FLOAT if dy.dtype in HALF else dy.dtype
    sums = op.ScatterElements(
        op.cast(x, wide), indices, op.cast(dy, wide), axis=axis, reduction="add"
    )
    return op.cast(sums, x.dtype)


def add_positions(op: Builder, dy: Tensor, source: Tensor, shape: Tensor) -> Tensor:
    """`dx[source] += dy`, where `source` holds flat positions in a tensor of `shape`."""
    flat = vector(op, count(op, shape))
    dx = add_elements(op, op.Reshape(dy, [-1]), op.Reshape(source, [-1]), flat, 0)
    return op.Reshape(dx, shape, allowzero=1)


def rows(op: Builder, indices: Tensor, shape: Tensor, depth: int, batch_dims: int = 0) -> Tensor:
    """The flat positions `[N, 1]` of the rows of a tensor of `shape` read by a GatherND.

    `indices` is `[*batch, …, depth]`; a row is what remains behind `batch_dims + depth` axes.
    """
    batches = op.constant(1)
    if batch_dims:
        batches = count(op, op.Slice(shape, [0], [batch_dims], [0]))
    indices = op.Reshape(indices, op.Concat(vector(op, batches), [-1, depth], axis=0))
    found = op.Unsqueeze(op.Range(op.constant(0), batches, op.constant(1)), [1])
    for column in range(depth):
        size = op.Gather(shape, op.constant(batch_dims + column), axis=0)
        index = op.Gather(indices, op.constant(column), axis=2)
        found = found * size + op.Mod(index, size)
    return op.Reshape(found, [-1, 1])

"""Composites of the index family: gradients are added at the elements read.

They get the *shape* of x, not x: nothing but the indices is kept.
"""

from __future__ import annotations

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Tensor, ints
from gradtool.ops.shared.scatter import add_elements, count, rows, vector
from gradtool.ops.shared.symbolic_sizes import dims


def like_shape(dy: Tensor, indices: Tensor, shape: Tensor) -> Outputs:
    return [(dims(shape), dy.dtype)]


@composite("GatherGrad", shapes=like_shape)
def gather_grad(
    op: Builder, dy: Tensor, indices: Tensor, shape: Tensor, *, axis: int = 0
) -> Tensor:
    """`dx[…, indices[i], …] = Σ dy[…, i, …]`, i over the axes of indices that stand for `axis`."""
    rank = len(dy.shape) - len(indices.shape) + 1
    axis %= rank
    if len(indices.shape) != 1:
        length = vector(op, count(op, op.shape(indices)))
        sides = op.Slice(shape, [0], [axis], [0]), op.Slice(shape, [axis + 1], [rank], [0])
        dy = op.Reshape(dy, op.Concat(sides[0], length, sides[1], axis=0), allowzero=1)
    indices = op.Reshape(indices, [-1, *[1] * (rank - axis - 1)])
    return add_elements(op, dy, op.Expand(indices, op.shape(dy)), shape, axis)


@composite("GatherElementsGrad", shapes=like_shape)
def gather_elements_grad(
    op: Builder, dy: Tensor, indices: Tensor, shape: Tensor, *, axis: int = 0
) -> Tensor:
    """`dx[i, indices[i, j, k], k] = Σⱼ dy[i, j, k]`, if axis is 1."""
    return add_elements(op, dy, indices, shape, axis)


@composite("GatherNDGrad", shapes=like_shape)
def gather_nd_grad(
    op: Builder, dy: Tensor, indices: Tensor, shape: Tensor, *, batch_dims: int = 0
) -> Tensor:
    """`dx[b][indices[b, i]] = Σ dy[b, i]`."""
    depth = ints(indices.shape)[-1]
    row = op.Slice(shape, [batch_dims + depth], [len(dims(shape))], [0])
    width = vector(op, count(op, row))
    lines = op.Reshape(dy, op.Concat([-1], width, axis=0))
    source = op.Expand(rows(op, indices, shape, depth, batch_dims), op.shape(lines))
    height = vector(op, count(op, op.Slice(shape, [0], [batch_dims + depth], [0])))
    dx = add_elements(op, lines, source, op.Concat(height, width, axis=0), 0)
    return op.Reshape(dx, shape, allowzero=1)

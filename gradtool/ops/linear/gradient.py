"""Gradients of matrix products."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Dim, Node, Tensor
from gradtool.ops.gradients import Gradients, gradient


@gradient("MatMul", broadcasts=True)
def matmul(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y[..., M, N] = a[..., M, K] @ b[..., K, N]`, with the ranks of `numpy.matmul`.

        da = dy @ bᵀ        db = aᵀ @ dy

    A vector operand is a matrix of one row (left) or one column (right).  Products that a
    broadcast operand takes part in are summed as they are made; with a single matrix on the right
    the leading axes are rows of one tall matrix.
    """
    a, b = node.inputs
    row, column = len(a.shape) == 1, len(b.shape) == 1
    if column:
        b, dy = op.unsqueeze(b, -1), op.unsqueeze(dy, -1)
    if row:
        a, dy = op.unsqueeze(a, 0), op.unsqueeze(dy, -2)

    if len(b.shape) == 2:
        da, db = _tall(op, a, b, dy)
    else:
        da = _summed(op, dy, op.swap_axes(b, -2, -1), a)
        db = _summed(op, op.swap_axes(a, -2, -1), dy, b)
    da = op.squeeze(da, -2) if row else da
    db = op.squeeze(db, -1) if column else db
    return da, db


def _tall(op: Builder, a: Tensor, b: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of `a[..., M, K] @ b[K, N]`, as two products of matrices."""
    rows = op.reshape(dy, [-1, dy.shape[-1]]) if len(dy.shape) > 2 else dy
    da = op.Gemm(rows, b, transB=1)
    if len(a.shape) == 2:
        db = op.Gemm(a, dy, transA=1)
    else:
        da = op.reshape_like(da, a)
        db = op.Gemm(op.reshape(a, [-1, a.shape[-1]]), rows, transA=1)
    da.shape, db.shape = a.shape, b.shape
    return da, db


def _summed(op: Builder, p: Tensor, q: Tensor, target: Tensor) -> Tensor:
    """`p @ q`, summed over the leading axes along which `target` is broadcast."""
    lead = max(len(p.shape), len(q.shape)) - len(target.shape)
    sizes = _leading(p, q)
    axes = [i for i, n in enumerate(sizes) if i < lead or (target.shape[i - lead] == 1 and n != 1)]
    if not axes:
        return op.MatMul(p, q)
    total = op.SummedMatMul(p, q, axes=axes)
    return op.squeeze(total, range(lead))


def _leading(p: Tensor, q: Tensor) -> list[Dim]:
    """The sizes of the leading axes of `p @ q`, as far as they are known to differ from one."""
    rank = max(len(p.shape), len(q.shape)) - 2
    padded = [(*[1] * (rank + 2 - len(v.shape)), *v.shape[:-2]) for v in (p, q)]
    return [n if m == 1 else m for m, n in zip(*padded, strict=True)]


@gradient("Gemm", broadcasts=True)
def gemm(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = alpha · A B + beta · C`, where A and B may be transposed.

    dA = alpha · dy Bᵀ        dB = alpha · Aᵀ dy        dC = beta · dy
    """
    a, b = node.inputs[:2]
    alpha = node.attributes.get_float("alpha", 1.0)
    beta = node.attributes.get_float("beta", 1.0)
    flip_a = node.attributes.get_int("transA", 0)
    flip_b = node.attributes.get_int("transB", 0)

    if flip_a:
        da = op.Gemm(b, dy, alpha=alpha, transA=flip_b, transB=1)
    else:
        da = op.Gemm(dy, b, alpha=alpha, transB=1 - flip_b)
    if flip_b:
        db = op.Gemm(dy, a, alpha=alpha, transA=1, transB=flip_a)
    else:
        db = op.Gemm(a, dy, alpha=alpha, transA=1 - flip_a)
    da.shape, db.shape = a.shape, b.shape
    return da, db, dy if beta == 1 else dy * beta


@gradient("Einsum", broadcasts=True)
def einsum(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y[r] = Σ x₁[i₁] · x₂[i₂] · …`:  dx₁[i₁] = Σ dy[r] · x₂[i₂] · …, the same with dy for x₁."""
    from gradtool.operators.equations import parse

    equation = node.attributes["equation"].as_string()
    operands, result = parse(equation, [len(x.shape) for x in node.inputs])
    return [_einsum_operand(op, node, operands, result, n, dy) for n in range(len(operands))]


def _einsum_operand(
    op: Builder,
    node: Node,
    operands: Sequence[Sequence[str]],
    result: Sequence[str],
    position: int,
    dy: Tensor,
) -> Tensor:
    """The gradient of one operand.

    Along an axis that is broadcast it is summed; along one whose index nothing else has, it is the
    same everywhere; a repeated index gives a diagonal.
    """
    from gradtool.operators.equations import write

    x, indices = node.inputs[position], list(operands[position])
    values = [dy, *node.inputs[:position], *node.inputs[position + 1 :]]
    terms = [result, *operands[:position], *operands[position + 1 :]]
    for axis, index in enumerate(indices):
        if index in indices[:axis]:
            indices[axis] = f"{index} again at {axis}"
            values.append(_identity(op, x, axis))
            terms.append((index, indices[axis]))

    available = {i for term in terms for i in term}
    alone = [a for a, i in enumerate(indices) if i not in available]
    summed = [
        a
        for a, i in enumerate(indices)
        if a not in alone and x.shape[a] == 1 and not _is_one(values, terms, i)
    ]
    missing = sorted(alone + summed)
    wanted = [i for a, i in enumerate(indices) if a not in missing]
    dx = op.unsqueeze(op.Einsum(*values, equation=write(terms, wanted)), missing)
    return op.expand(dx, x) if alone else dx


def _is_one(values: Sequence[Tensor], terms: Sequence[Sequence[str]], index: str) -> bool:
    """Whether `index` has size one in all of the values."""
    sizes = [v.shape[t.index(index)] for v, t in zip(values, terms, strict=True) if index in t]
    return all(size == 1 for size in sizes)


def _identity(op: Builder, x: Tensor, axis: int) -> Tensor:
    """The identity matrix of the size of an axis, computed at run time if it is open."""
    size = x.shape[axis]
    if isinstance(size, int):
        return op.constant(np.eye(size, dtype=x.dtype.numpy()))
    sizes = [op.size_of(x, axis, axis + 1)] * 2
    square = op.ConstantOfShape(op.Concat(*sizes, axis=0), value=np.zeros(1, np.float32))
    return op.cast(op.EyeLike(square), x.dtype)

"""Matrix products, written where they are told and with transposed operands as they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.sums import accumulator
from gradtool.ops.shared.types import Array, Arrays, DType, Specs


def product(xp: Any, a: Array, b: Array, out: Array, work: Arrays) -> None:
    """`out = a @ b`; half-precision matrices are multiplied in float32, one at a time."""
    if not work:
        a, b, out = _collapse(a, b, out)
        xp.matmul(a, b, out=out)
        return
    lead = out.shape[:-2]
    a = xp.broadcast_to(a, (*lead, *a.shape[-2:]))
    b = xp.broadcast_to(b, (*lead, *b.shape[-2:]))
    left, right, y = work
    for index in np.ndindex(*lead):
        xp.copyto(left, a[index])
        xp.copyto(right, b[index])
        xp.matmul(left, right, out=y)
        xp.copyto(out[index], y, casting="unsafe")


def by_column(y: Array) -> bool:
    """Whether a matrix is to be written column by column: as the transpose of `bᵀ aᵀ`."""
    return bool(y.flags.f_contiguous and not y.flags.c_contiguous)


def product_work(a: tuple[int, ...], b: tuple[int, ...], dtype: DType) -> list[Spec]:
    """Float32 copies of one matrix of each operand and of the result, for half precision."""
    wide = accumulator(dtype)
    if wide == dtype:
        return []
    return [Spec(s, wide) for s in (a, b, (a[0], b[1]))]


def _collapse(a: Array, b: Array, out: Array) -> tuple[Array, Array, Array]:
    """A stack of matrices times one matrix is one tall matrix times it."""
    if a.ndim > 2 and b.ndim == 2 and a.flags.c_contiguous and out.flags.c_contiguous and a.size:
        return a.reshape(-1, a.shape[-1]), b, out.reshape(-1, out.shape[-1])
    return a, b, out


def _matmul_work(a: Spec, b: Spec, *, out: Specs) -> list[Spec]:
    """A vector is a row on the left, a column on the right."""
    left = a.shape[-2:] if len(a.shape) > 1 else (1, a.shape[0])
    right = b.shape[-2:] if len(b.shape) > 1 else (b.shape[0], 1)
    return product_work(left, right, out[0].dtype)


@kernel("MatMul", strided=True, work=_matmul_work)
def matmul(xp: Any, a: Array, b: Array, *, out: Arrays, work: Arrays) -> None:
    """`y[..., M, N] = a[..., M, K] @ b[..., K, N]`."""
    y = out[0]
    if b.ndim == 1:
        b, y = b[:, None], y[..., None]
    if a.ndim == 1:
        a, y = a[None, :], y[..., None, :]
    product(xp, a, b, y, work)


def _gemm_work(
    a: Spec, b: Spec, c: Spec | None = None, *,
    out: Specs, beta: float = 1.0, transA: int = 0, transB: int = 0,
) -> list[Spec]:  # fmt: skip
    left = a.shape[::-1] if transA else a.shape
    right = b.shape[::-1] if transB else b.shape
    work = product_work(left, right, out[0].dtype)
    return [*work, c] if c is not None and _scales(c, beta) else work


def _scales(c: Array | Spec | float | None, beta: float) -> bool:
    return c is not None and beta not in (0, 1)


@kernel("Gemm", strided=True, work=_gemm_work)
def gemm(
    xp: Any, a: Array, b: Array, c: Array | None = None, *, out: Arrays, work: Arrays,
    alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0,
) -> None:  # fmt: skip
    """`y = alpha · A B + beta · C`, with A and B perhaps transposed."""
    y = out[0]
    work = list(work)
    scaled = work.pop() if _scales(c, beta) else None
    a, b = (a.T if transA else a), (b.T if transB else b)
    if by_column(y):
        product(xp, b.T, a.T, y.T, [work[i].T for i in (1, 0, 2)] if work else work)
    else:
        product(xp, a, b, y, work)
    if alpha != 1:
        xp.multiply(y, y.dtype.type(alpha), out=y)
    if c is not None and beta != 0:
        if scaled is not None:
            c = xp.multiply(c, y.dtype.type(beta), out=scaled)
        xp.add(y, c, out=y)


def _summed_work(a: Spec, b: Spec, *, out: Specs) -> list[Spec]:
    one = (a.shape[-2], b.shape[-1])
    return [
        Spec(one, np.dtype(out[0].dtype)),
        *product_work(a.shape[-2:], b.shape[-2:], out[0].dtype),
    ]


@kernel("ai.gradtool::SummedMatMul", strided=True, work=_summed_work)
def summed_matmul(
    xp: Any, a: Array, b: Array, *, out: Arrays, work: Arrays, axes: Sequence[int]
) -> None:
    """`y = Σ a @ b` over the leading `axes`: one product at a time, added to its place."""
    y = out[0]
    term, *wide = work
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = xp.broadcast_to(a, (*lead, *a.shape[-2:]))
    b = xp.broadcast_to(b, (*lead, *b.shape[-2:]))
    if 0 in lead:
        y.fill(0)
    for index in np.ndindex(*lead):
        target = tuple(0 if i in axes else n for i, n in enumerate(index))
        if all(index[i] == 0 for i in axes):
            product(xp, a[index], b[index], y[target], wide)
        else:
            product(xp, a[index], b[index], term, wide)
            met = y[target]
            xp.add(met, term, out=met)

"""Matrix products, written where they are told and with transposed operands as they lie."""

from __future__ import annotations

import numpy as np

from gradtool.exec.kernel import kernel
from gradtool.exec.kernels import _einsum  # noqa: F401 - registers its kernel
from gradtool.exec.kernels._products import product, product_work
from gradtool.program import Spec


def _matmul_work(a, b, *, out):
    """A vector is a row on the left, a column on the right."""
    left = a.shape[-2:] if len(a.shape) > 1 else (1, a.shape[0])
    right = b.shape[-2:] if len(b.shape) > 1 else (b.shape[0], 1)
    return product_work(left, right, out[0].dtype)


@kernel("MatMul", strided=True, work=_matmul_work)
def matmul(xp, a, b, *, out, work):
    """`y[..., M, N] = a[..., M, K] @ b[..., K, N]`."""
    y = out[0]
    if b.ndim == 1:
        b, y = b[:, None], y[..., None]
    if a.ndim == 1:
        a, y = a[None, :], y[..., None, :]
    product(xp, a, b, y, work)


def _gemm_work(a, b, c=None, *, out, alpha=1.0, beta=1.0, transA=0, transB=0):
    left = a.shape[::-1] if transA else a.shape
    right = b.shape[::-1] if transB else b.shape
    work = product_work(left, right, out[0].dtype)
    return [*work, c] if _scales(c, beta) else work


def _scales(c, beta):
    return c is not None and beta not in (0, 1)


@kernel("Gemm", strided=True, work=_gemm_work)
def gemm(xp, a, b, c=None, *, out, work, alpha=1.0, beta=1.0, transA=0, transB=0):
    """`y = alpha · A B + beta · C`, with A and B perhaps transposed."""
    y = out[0]
    work = list(work)
    scaled = work.pop() if _scales(c, beta) else None
    product(xp, a.T if transA else a, b.T if transB else b, y, work)
    if alpha != 1:
        xp.multiply(y, y.dtype.type(alpha), out=y)
    if c is not None and beta != 0:
        if scaled is not None:
            c = xp.multiply(c, y.dtype.type(beta), out=scaled)
        xp.add(y, c, out=y)


def _summed_work(a, b, *, out, axes):
    one = (a.shape[-2], b.shape[-1])
    return [
        Spec(one, np.dtype(out[0].dtype)),
        *product_work(a.shape[-2:], b.shape[-2:], out[0].dtype),
    ]


@kernel("ai.gradtool::SummedMatMul", strided=True, work=_summed_work)
def summed_matmul(xp, a, b, *, out, work, axes):
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
            xp.add(y[target], term, out=y[target])

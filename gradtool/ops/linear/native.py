"""MatMul and Gemm by the library's product: operands as they lie, transposed ones too."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.native import gemm as library
from gradtool.native import slots
from gradtool.ops.linear.kernel import by_column
from gradtool.ops.native import Bound, are_floats, in_turn, native, room
from gradtool.ops.shared.types import Array, Arrays, Specs

_SIZE = 4


class _Matrix(NamedTuple):
    """A matrix of a batch: where it begins, floats between its rows, whether it lies transposed."""

    address: int
    row: int
    turned: bool


def _matrix(a: Array) -> _Matrix | None:
    """Layout of a matrix; None if neither of its axes is innermost."""
    (rows, columns), (down, right) = a.shape, a.strides
    if columns == 1 or right == _SIZE:
        return _Matrix(a.ctypes.data, down // _SIZE if rows > 1 else max(columns, 1), turned=False)
    if rows == 1 or down == _SIZE:
        return _Matrix(a.ctypes.data, right // _SIZE, turned=True)
    return None


def _sizes(m: int, n: int, k: int, batch: int) -> int:
    """Bytes of workspace of a stack of products, however it is cut."""
    cuts = (
        library.work(1, m, n, k),
        library.work(batch, m, n, k),
        library.work(1, m * batch, n, k),
    )
    return max(cuts)


def bound_product(a: Array, b: Array, y: Array, work: Array, **more: Any) -> Bound:
    """Bound call computing `y = a @ b` of stacks of matrices."""
    if 0 in y.shape:
        return in_turn()
    if a.ndim > 2 and b.ndim == 2 and a.flags.c_contiguous and y.flags.c_contiguous:
        a, y = a.reshape(-1, a.shape[-1]), y.reshape(-1, y.shape[-1])
    lead = y.shape[:-2]
    a, b = (np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b))
    calls: list[Bound] = []
    for one, other, result, batch in _stacks(a, b, y):
        left, right = (_matrix(x[(0,) * (x.ndim - 2)]) for x in (one, other))
        if left is None or right is None:
            calls.append(partial(np.matmul, one, other, out=result))
            continue
        steps = [x.strides[0] // _SIZE if x.ndim > 2 else 0 for x in (one, other, result)]
        m, n, k = y.shape[-2], y.shape[-1], a.shape[-1]
        calls.append(
            library.GEMM.bind(
                a=left.address, b=right.address, bias=more.get("bias"), c=result.ctypes.data,
                work=work.ctypes.data, batch=batch, m=m, n=n, k=k,
                a_row=left.row, b_row=right.row, c_row=max(result.strides[-2] // _SIZE, 1),
                a_step=steps[0], b_step=steps[1], c_step=steps[2],
                a_turned=int(left.turned), b_turned=int(right.turned),
                slots=slots(batch * m * n * k),
                alpha=more.get("alpha", 1.0), beta=more.get("beta", 0.0),
            )
        )  # fmt: skip
    return in_turn(*calls)


def _stacks(a: Array, b: Array, y: Array) -> Iterator[tuple[Array, Array, Array, int]]:
    """Evenly strided stacks of matrices, of as many leading axes as possible."""
    lead = y.shape[:-2]
    if not lead:
        yield a, b, y, 1
        return
    if all(_is_even(x) for x in (a, b, y)):
        flat = [_flattened(x) for x in (a, b, y)]
        yield (*flat, math.prod(lead))
        return
    for index in range(lead[0]):
        yield from _stacks(a[index], b[index], y[index])


def _is_even(a: Array) -> bool:
    """Whether the leading axes step evenly through memory."""
    lead = [(n, s) for n, s in zip(a.shape[:-2], a.strides[:-2], strict=True) if n > 1]
    return all(s == n1 * s1 for (_, s), (n1, s1) in pairwise(lead))


def _flattened(a: Array) -> Array:
    lead = [s for n, s in zip(a.shape[:-2], a.strides[:-2], strict=True) if n > 1]
    shape = (math.prod(a.shape[:-2]), *a.shape[-2:])
    step = lead[-1] if lead else 0
    return np.lib.stride_tricks.as_strided(a, shape, (step, *a.strides[-2:]))


def _are_matrices(a: Spec, b: Spec, *, out: Specs) -> bool:
    return are_floats(a, b, *out) and len(a.shape) > 1 and len(b.shape) > 1


def _matmul_work(a: Spec, *, out: Specs) -> list[Spec]:
    *lead, m, n = out[0].shape
    return room(_sizes(m, n, a.shape[-1], math.prod(lead)))


@native("MatMul", fits=_are_matrices, work=_matmul_work, strided=True)
def matmul(a: Array, b: Array, *, out: Arrays, work: Arrays) -> Bound:
    """`y[..., M, N] = a[..., M, K] @ b[..., K, N]`."""
    return bound_product(a, b, out[0], work[0])


def _gemm_fits(a: Spec, b: Spec, c: Spec | None = None, *, out: Specs) -> bool:
    return are_floats(a, b, c, *out)


def _gemm_work(a: Spec, *, out: Specs, transA: int = 0) -> list[Spec]:
    (m, n), k = out[0].shape, a.shape[0 if transA else 1]
    return room(max(_sizes(m, n, k, 1), _sizes(n, m, k, 1)))


@native("Gemm", fits=_gemm_fits, work=_gemm_work, strided=True)
def gemm(
    a: Array, b: Array, c: Array | None = None, *,
    out: Arrays, work: Arrays, alpha: float = 1.0, beta: float = 1.0, transA: int = 0,
    transB: int = 0,
) -> Bound:  # fmt: skip
    """`y = alpha · A B + beta · C`, with A and B perhaps transposed."""
    (y,) = out
    a, b = (a.T if transA else a), (b.T if transB else b)
    if by_column(y):
        a, b, y = b.T, a.T, y.T
    if c is None or beta == 0:
        return bound_product(a, b, y, work[0], alpha=alpha)
    row = c.ndim and c.size == c.shape[-1] == y.shape[-1] and c.flags.c_contiguous
    if row and beta == 1:
        return bound_product(a, b, y, work[0], alpha=alpha, bias=c.reshape(-1))
    return in_turn(
        partial(np.copyto, y, c), bound_product(a, b, y, work[0], alpha=alpha, beta=beta)
    )

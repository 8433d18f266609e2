"""MatMul and Gemm by the library's product: operands as they lie, transposed ones too."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, cast

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
    """Layout of the first matrix of a stack; None if neither of its axes is innermost."""
    (rows, columns), (down, right) = a.shape[-2:], a.strides[-2:]
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
    a, b = (x if x.shape[:-2] == lead else np.broadcast_to(x, (*lead, *x.shape[-2:]))
            for x in (a, b))  # fmt: skip
    m, n, k = y.shape[-2], y.shape[-1], a.shape[-1]
    calls: list[Bound] = []
    for one, other, result, steps, batch in _stacks(a, b, y):
        left, right = _matrix(one), _matrix(other)
        if left is None or right is None:
            calls.append(partial(np.matmul, *map(_flattened, (one, other)), out=_flattened(result)))
            continue
        calls.append(
            library.GEMM.bind(
                a=left.address, b=right.address, bias=more.get("bias"), c=result.ctypes.data,
                work=work, batch=batch, m=m, n=n, k=k,
                a_row=left.row, b_row=right.row, c_row=max(result.strides[-2] // _SIZE, 1),
                a_step=steps[0] // _SIZE, b_step=steps[1] // _SIZE, c_step=steps[2] // _SIZE,
                a_turned=int(left.turned), b_turned=int(right.turned),
                slots=slots(batch * m * n * k),
                alpha=more.get("alpha", 1.0), beta=more.get("beta", 0.0),
            )
        )  # fmt: skip
    return in_turn(*calls)


def _stacks(a: Array, b: Array, y: Array) -> Iterator[tuple[Array, Array, Array, list[int], int]]:
    """Evenly strided stacks of matrices, bytes between those, and how many there are."""
    steps = [_step(x) for x in (a, b, y)]
    if None not in steps:
        yield a, b, y, cast("list[int]", steps), math.prod(y.shape[:-2])
        return
    for index in range(y.shape[0]):
        yield from _stacks(a[index], b[index], y[index])


def _step(a: Array) -> int | None:
    """Bytes between matrices, 0 of one; None if the leading axes step unevenly through memory."""
    lead = [(n, s) for n, s in zip(a.shape[:-2], a.strides[:-2], strict=True) if n > 1]
    is_even = all(s == n1 * s1 for (_, s), (n1, s1) in pairwise(lead))
    return (lead[-1][1] if lead else 0) if is_even else None


def _flattened(a: Array) -> Array:
    shape, step = (math.prod(a.shape[:-2]), *a.shape[-2:]), _step(a)
    return np.lib.stride_tricks.as_strided(a, shape, (step, *a.strides[-2:]))  # type: ignore[arg-type]


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

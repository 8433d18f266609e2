"""Products of stacks of matrices, written where they are told."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.shared.sums import accumulator
from gradtool.ops.shared.types import Array, Arrays, DType


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

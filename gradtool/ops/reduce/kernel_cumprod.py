"""Running products along an axis, and their gradient without a division."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array, Arrays


def _oriented(arrays: Arrays, axis: Array, reverse: int) -> Iterator[Array]:
    """Arrays with the axis first, in the order of the products."""
    axis = int(np.ravel(axis)[0]) % arrays[0].ndim
    for array in arrays:
        first = array.swapaxes(0, axis)
        yield first[::-1] if reverse else first


@kernel("CumProd", host=(1,), strided=True)
def cum_prod(
    xp: Any, x: Array, axis: Array, *, out: Arrays, exclusive: int = 0, reverse: int = 0
) -> None:
    """`y[i] = Π x[j]` over the j up to i, or before i if exclusive."""
    x, y = _oriented((x, out[0]), axis, reverse)
    if not len(x):
        return
    if exclusive:
        y[0, ...] = 1
    else:
        xp.copyto(y[0, ...], x[0, ...])
    for i in range(1, len(x)):
        xp.multiply(y[i - 1, ...], x[i - 1 if exclusive else i, ...], out=y[i, ...])


def _line(x: Spec, axis: Array) -> list[Spec]:
    """The elements at one place of the axis; for a shortest one, if it is not known."""
    known = isinstance(axis, np.ndarray)
    length = x.shape[int(axis.flat[0])] if known else min(x.shape)
    size = 0 if known and length < 2 else math.prod(x.shape) // max(1, length)
    return [Spec((size,), x.dtype)]


@kernel("ai.gradtool::CumProdGrad", host=(1,), strided=True, work=_line)
def cum_prod_grad(
    xp: Any,
    x: Array,
    axis: Array,
    dy: Array,
    *,
    out: Arrays,
    work: Arrays,
    exclusive: int = 0,
    reverse: int = 0,
) -> None:
    """`dx[i] = (Π x before i) · s[i]` with `s[i] = dy[i] + x[i + 1] s[i + 1]`.

    If exclusive, `s[i] = dy[i + 1] + x[i + 1] s[i + 1]`.
    """
    x, dy, dx = _oriented((x, dy, out[0]), axis, reverse)
    if not len(x):
        return
    dx[-1] = 0 if exclusive else dy[-1]
    for i in range(len(x) - 2, -1, -1):
        xp.multiply(x[i + 1, ...], dx[i + 1, ...], out=dx[i, ...])
        dx[i] += dy[i + 1 if exclusive else i]
    if len(x) < 2:
        return
    before = work[0][: x[0].size].reshape(x[0].shape)
    xp.copyto(before, x[0])
    for i in range(1, len(x)):
        dx[i] *= before
        before *= x[i]

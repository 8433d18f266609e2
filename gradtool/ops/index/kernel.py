"""Reading and writing by indices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.index.kernel_accumulate import (
    accumulate,
    accumulate_planes,
    element_positions,
    normalised,
    position_work,
    row_positions,
    scatter,
)
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.select import take
from gradtool.ops.shared.types import Array, Arrays

INT64 = np.dtype(np.int64)


# -------------------------------------------------------------------------- gather


@kernel("Gather", work=lambda x, indices: [Spec(indices.shape, INT64)])
def gather(xp: Any, x: Array, indices: Array, *, out: Arrays, work: Arrays, axis: int = 0) -> None:
    """`y[…, i, …] = x[…, indices[i], …]`, with i over any number of axes."""
    rows = normalised(xp, indices, x.shape[axis], work[0])
    if out[0].size:
        take(xp, x, rows, axis=axis, out=out[0])


@kernel("ai.gradtool::GatherGrad", host=(2,), work=lambda dy, indices: [Spec(indices.shape, INT64)])
def gather_grad(
    xp: Any, dy: Array, indices: Array, shape: Array, *, out: Arrays, work: Arrays, axis: int = 0
) -> None:
    """Rows of `dy` added to the rows of zeros that they were read from, in order of reading."""
    dx = out[0]
    dx.fill(0)
    axis %= dx.ndim
    rows = normalised(xp, indices, dx.shape[axis], work[0]).reshape(-1)
    before, after = math.prod(dx.shape[:axis]), math.prod(dx.shape[axis + 1 :])
    if not dy.size:
        return
    dx = dx.reshape(before, -1, after)
    dy = dy.reshape(before, -1, after)
    if before > len(rows) and xp is np:
        for i, row in enumerate(rows.tolist()):
            dx[:, row] += dy[:, i]
    else:
        accumulate_planes(xp, "add", dx, rows, dy)


@kernel("GatherElements", work=lambda x, indices: [position_work(indices)])
def gather_elements(
    xp: Any, x: Array, indices: Array, *, out: Arrays, work: Arrays, axis: int = 0
) -> None:
    """`y[i, j, k] = x[i, indices[i, j, k], k]`, if axis is 1."""
    flat = x.reshape(-1)
    for tile, positions in element_positions(xp, indices, x.shape, axis % x.ndim, work[0]):
        take(xp, flat, positions, out=out[0][tile].reshape(-1))


@kernel(
    "ai.gradtool::GatherElementsGrad", host=(2,), work=lambda dy, indices: [position_work(indices)]
)
def gather_elements_grad(
    xp: Any, dy: Array, indices: Array, shape: Array, *, out: Arrays, work: Arrays, axis: int = 0
) -> None:
    """Elements of `dy` added to the zeros that they were read from, in order of reading."""
    dx = out[0]
    dx.fill(0)
    flat = dx.reshape(-1)
    for tile, positions in element_positions(xp, indices, dx.shape, axis % dx.ndim, work[0]):
        accumulate(xp, "add", flat, positions, dy[tile].reshape(-1))


def _rows_work(x: Spec, indices: Spec) -> list[Spec]:
    return [Spec((2 * math.prod(indices.shape[:-1]),), INT64)]


@kernel("GatherND", work=_rows_work)
def gather_nd(
    xp: Any, x: Array, indices: Array, *, out: Arrays, work: Arrays, batch_dims: int = 0
) -> None:
    """`y[b, i] = x[b][indices[b, i]]`: the last axis of indices addresses several axes of x."""
    if out[0].size:
        rows, lines = row_positions(xp, indices, x.shape, work[0], batch_dims)
        take(xp, x.reshape(lines), rows, axis=0, out=out[0].reshape(-1, *lines[1:]))


@kernel("ai.gradtool::GatherNDGrad", host=(2,), work=_rows_work)
def gather_nd_grad(
    xp: Any, dy: Array, indices: Array, shape: Array, *,
    out: Arrays, work: Arrays, batch_dims: int = 0,
) -> None:  # fmt: skip
    """Rows of `dy` added to the rows of zeros that they were read from, in order of reading."""
    dx = out[0]
    dx.fill(0)
    if dy.size:
        rows, lines = row_positions(xp, indices, dx.shape, work[0], batch_dims)
        accumulate(xp, "add", dx.reshape(lines), rows, dy.reshape(-1, *lines[1:]))


# ------------------------------------------------------------------------- scatter


def _start(xp: Any, x: Array, y: Array) -> None:
    """`y` as a copy of `x`, unless they lie in the same place."""
    if not xp.may_share_memory(x, y):
        xp.copyto(y, x)


@kernel("ScatterElements", may_inplace=(0,), work=lambda x, indices: [position_work(indices)])
def scatter_elements(
    xp: Any, x: Array, indices: Array, updates: Array, *,
    out: Arrays, work: Arrays, axis: int = 0, reduction: str = "none",
) -> None:  # fmt: skip
    """`y = x`, then `y[i, indices[i, j, k], k] = updates[i, j, k]`, if axis is 1."""
    y = out[0]
    _start(xp, x, y)
    flat = y.reshape(-1)
    for tile, positions in element_positions(xp, indices, y.shape, axis % y.ndim, work[0]):
        scatter(xp, reduction, flat, positions, updates[tile].reshape(-1))


@kernel("ScatterND", may_inplace=(0,), work=_rows_work)
def scatter_nd(
    xp: Any, x: Array, indices: Array, updates: Array, *,
    out: Arrays, work: Arrays, reduction: str = "none",
) -> None:  # fmt: skip
    """`y = x`, then `y[indices[i]] = updates[i]`; indices address the leading axes of y."""
    y = out[0]
    _start(xp, x, y)
    if updates.size:
        rows, lines = row_positions(xp, indices, y.shape, work[0])
        scatter(xp, reduction, y.reshape(lines), rows, updates.reshape(-1, *lines[1:]))

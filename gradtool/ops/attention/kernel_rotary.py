"""Rotary position embedding, and the gradient of its tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.index.kernel_accumulate import accumulate, normalised
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.select import take
from gradtool.ops.shared.sums import accumulator
from gradtool.ops.shared.types import Array, Arrays


def _heads(x: Array, num_heads: int) -> Array:
    """[B, H, S, D] or [B, S, H · D] as a view [B, H, S, D]."""
    if x.ndim == 4:
        return x
    return x.reshape(*x.shape[:2], num_heads, x.shape[2] // num_heads).transpose(0, 2, 1, 3)


def _halves(x: Array, size: int, interleaved: int) -> tuple[Array, Array]:
    """The two coordinates of each rotated pair."""
    if interleaved:
        return x[..., :size:2], x[..., 1:size:2]
    return x[..., : size // 2], x[..., size // 2 : size]


def _table(xp: Any, table: Array, positions: Array | None, row: int, buffer: Array) -> Array:
    """The angles of batch `row`, [S, D/2]."""
    if positions is None:
        xp.copyto(buffer, table[row])
    elif table.dtype == buffer.dtype:
        take(xp, table, positions[row], axis=0, out=buffer)
    else:
        for s, p in enumerate(positions[row].tolist()):
            xp.copyto(buffer[s], table[p])
    return buffer


def _work(x: Spec, cos: Spec, *, num_heads: int = 0) -> list[Spec]:
    heads, length = (x.shape[1], x.shape[2]) if len(x.shape) == 4 else (num_heads, x.shape[1])
    half, wide = cos.shape[-1], accumulator(x.dtype)
    return [*[Spec((length, half), wide)] * 2, *[Spec((heads, length, half), wide)] * 2]


@kernel("RotaryEmbedding", strided=True, work=_work)
def rotary_embedding(
    xp: Any, x: Array, cos: Array, sin: Array, positions: Array | None = None, *, out: Arrays,
    work: Arrays, interleaved: int = 0, rotary_embedding_dim: int = 0, num_heads: int = 0,
) -> None:  # fmt: skip
    """`(x₁ cos - x₂ sin, x₁ sin + x₂ cos)` for each pair of coordinates; the others are copied."""
    c, s, first, second = work
    x, y = _heads(x, num_heads), _heads(out[0], num_heads)
    size = rotary_embedding_dim or x.shape[3]
    for b in range(x.shape[0]):
        _table(xp, cos, positions, b, c)
        _table(xp, sin, positions, b, s)
        (x1, x2), (y1, y2) = _halves(x[b], size, interleaved), _halves(y[b], size, interleaved)
        for left, right, combine, target in ((c, s, xp.subtract, y1), (s, c, xp.add, y2)):
            xp.multiply(x1, left, out=first)
            xp.multiply(x2, right, out=second)
            combine(first, second, out=first)
            xp.copyto(target, first, casting="unsafe")
        xp.copyto(y[b][..., size:], x[b][..., size:])


def _table_bytes(x: Spec) -> int:
    pairs = int(np.prod(x.shape)) // 2
    return 6 * pairs * accumulator(x.dtype).itemsize


@kernel("ai.gradtool::RotaryTableGrad", temporaries=_table_bytes)
def rotary_table_grad(
    xp: Any, x: Array, dy: Array, table: Array, positions: Array | None = None, *,
    interleaved: int = 0, rotary_embedding_dim: int = 0, num_heads: int = 0,
) -> tuple[Array, Array]:  # fmt: skip
    """`(dcos, dsin)`, summed over heads: `Σ dy₁ x₁ + dy₂ x₂` and `Σ dy₂ x₁ - dy₁ x₂`."""
    x, dy = _heads(x, num_heads), _heads(dy, num_heads)
    size, wide = rotary_embedding_dim or x.shape[3], accumulator(x.dtype)
    (x1, x2), (d1, d2) = _halves(x, size, interleaved), _halves(dy, size, interleaved)
    found = []
    for values in (d1 * x1 + d2 * x2, d2 * x1 - d1 * x2):
        total = xp.sum(values, axis=1, dtype=wide)
        if positions is not None:
            rows = xp.zeros(table.shape, wide)
            places = normalised(xp, positions, len(rows), xp.empty(positions.shape, np.int64))
            accumulate(xp, "add", rows, places.reshape(-1), total.reshape(-1, rows.shape[-1]))
            total = rows
        found.append(total.astype(table.dtype))
    return tuple(found)

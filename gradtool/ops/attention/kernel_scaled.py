"""Scaled dot product attention and its gradient, a block of scores at a time.

Scores of some query rows of some heads are computed, used and forgotten: the workspace depends
neither on the batch nor on the number of heads, and the matrix of all scores never exists.
Operands are views [B, G, n, S, D]: `G` heads of keys, each read by `n` heads of queries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradtool.operators.attention import Block, Shape
from gradtool.ops.shared.types import Array


def queries_of(a: Array | None, n: Shape) -> Array | None:
    """[B, G·n, S, D] or [B, S, G·n·D] as a view [B, G, n, S, D]."""
    if a is None:
        return None
    if a.ndim == 4:
        return a.reshape(n.batch, n.groups, n.heads, *a.shape[2:])
    b, s, size = a.shape
    a = a.reshape(b, s, n.groups, n.heads, size // (n.groups * n.heads))
    return a.transpose(0, 2, 3, 1, 4)


def keys_of(a: Array | None, n: Shape) -> Array | None:
    """[B, G, T, D] or [B, T, G·D] as a view [B, G, T, D]."""
    if a is None or a.ndim == 4:
        return a
    b, t, size = a.shape
    return a.reshape(b, t, n.groups, size // n.groups).transpose(0, 2, 1, 3)


def scores_of(a: Array | None, n: Shape) -> Array | None:
    """The output of scores, or its gradient, as a view [B, G, n, S, T]."""
    if a is None:
        return None
    return a.reshape(n.batch, n.groups, n.heads, n.queries, n.keys)


def mask_of(mask: Array | None, n: Shape) -> Array | None:
    """A mask as a view [B, G, n, S, M] with sizes of one where it is broadcast."""
    if mask is None:
        return None
    b, h, s, m = (1,) * (4 - mask.ndim) + mask.shape
    return mask.reshape(b, *((1, 1) if h == 1 else (n.groups, n.heads)), s, m)


def part(mask: Array, block: Block) -> Array:
    """Part of a mask for a block: [B, G, S, M], of size one where it is broadcast."""
    whole: tuple[Any, ...] = (slice(None), slice(None), 0, slice(None))
    pairs = zip(mask.shape, block.queries, whole, strict=False)
    return mask[tuple(every if size == 1 else some for size, some, every in pairs)]


def take(buffer: Array, shape: Sequence[int]) -> Array:
    """The first elements of a flat buffer, as an array of `shape`."""
    return buffer[: math.prod(shape)].reshape(shape)


def load(
    xp: Any, block: Block, past: Array | None, new: Array, buffer: Array | None, n: Shape
) -> Array:
    """Keys or values of a block, `past` ones first: a view of `new`, or a copy in `buffer`."""
    if not n.gathered:
        return new[block.keys]
    now = new[block.keys]
    found = take(buffer, (*now.shape[:2], n.keys, now.shape[3]))
    if past is not None:
        xp.copyto(found[:, :, : n.past], past[block.keys])
    if block.first:
        xp.copyto(found[:, :, n.past :], now)
    return found


def scaled(xp: Any, q: Array, block: Block, buffer: Array, n: Shape) -> Array:
    """The queries of a block times the scale, in the type of the scores."""
    rows = q[block.queries]
    found = take(buffer, rows.shape)
    xp.copyto(found, rows)
    xp.multiply(found, n.scale, out=found)
    return found

"""Scaled dot product attention and its gradient, a block of scores at a time.

Scores of some query rows of some heads are computed, used and forgotten: the workspace depends
neither on the batch nor on the number of heads, and the matrix of all scores never exists.
Operands are views [B, G, n, S, D]: `G` heads of keys, each read by `n` heads of queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

SCORES = 1 << 17  # scores in a block: 512 KiB of float32
FLOAT, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


@dataclass(frozen=True)
class Block:
    """Some rows of queries of head `head` of each group: what is computed at once."""

    batches: slice
    groups: slice
    head: int
    rows: slice
    first: bool
    last: bool

    @property
    def keys(self) -> tuple[slice, slice]:
        """The index of the keys and values that the block reads."""
        return self.batches, self.groups

    @property
    def queries(self) -> tuple[slice, slice, int, slice]:
        """The index of the rows that the block computes."""
        return self.batches, self.groups, self.head, self.rows


@dataclass(frozen=True)
class Shape:
    """Sizes and options of an attention node."""

    batch: int
    groups: int
    heads: int
    queries: int
    keys: int
    past: int
    size: int
    value_size: int
    gathered: bool
    dtype: np.dtype[Any]
    scale: float
    causal: bool
    softcap: float
    window: tuple[int, int]

    @property
    def at_once(self) -> tuple[int, int, int]:
        """How many batches, groups and rows a block has."""
        total = max(self.keys, 1)
        rows = max(1, min(self.queries, SCORES // total))
        if rows < self.queries:
            return 1, 1, rows
        groups = max(1, min(self.groups, SCORES // (total * max(rows, 1))))
        if groups < self.groups:
            return 1, groups, rows
        return max(1, min(self.batch, SCORES // (total * max(rows, 1) * groups))), groups, rows

    @property
    def spans(self) -> list[slice]:
        """The rows of each block of a head."""
        _, _, rows = self.at_once
        return [slice(r, min(r + rows, self.queries)) for r in range(0, self.queries, rows)]

    def blocks(self) -> Iterator[Block]:
        """Every block; those that read the same keys follow each other, `first` to `last`."""
        batches, groups, _ = self.at_once
        turns = [(head, rows) for head in range(self.heads) for rows in self.spans]
        for b in range(0, self.batch, batches):
            for g in range(0, self.groups, groups):
                for turn, (head, rows) in enumerate(turns):
                    yield Block(
                        slice(b, min(b + batches, self.batch)),
                        slice(g, min(g + groups, self.groups)),
                        head, rows, turn == 0, turn == len(turns) - 1,
                    )  # fmt: skip


def shape_of(
    q, k, v, past=None, *,
    scale=None, is_causal=0, q_num_heads=None, kv_num_heads=None, softcap=0.0,
    softmax_precision=None, qk_matmul_output_mode=0, left_window_size=-1, right_window_size=-1,
) -> Shape:  # fmt: skip
    """The sizes of a node from its operands, and its options.

    Scores are float32 for half precision, and float64 if `softmax_precision` says so.
    """
    if len(q.shape) == 4:
        heads, groups, size, value_size = q.shape[1], k.shape[1], q.shape[3], v.shape[3]
    else:
        heads, groups = q_num_heads, kv_num_heads
        size, value_size = q.shape[2] // heads, v.shape[2] // groups
    dtype = DOUBLE if DOUBLE in (q.dtype, v.dtype) or softmax_precision == 11 else FLOAT
    before = 0 if past is None else past.shape[2]
    gathered = past is not None or not q.dtype == k.dtype == v.dtype == dtype
    scale = 1 / math.sqrt(size) if scale is None else scale
    return Shape(
        q.shape[0], groups, heads // groups, q.shape[-2], before + k.shape[-2], before, size,
        value_size, gathered, dtype, scale, bool(is_causal), float(softcap or 0),
        (left_window_size, right_window_size),
    )  # fmt: skip


def queries_of(a, n: Shape):
    """[B, G·n, S, D] or [B, S, G·n·D] as a view [B, G, n, S, D]."""
    if a is None:
        return None
    if a.ndim == 4:
        return a.reshape(n.batch, n.groups, n.heads, *a.shape[2:])
    b, s, size = a.shape
    a = a.reshape(b, s, n.groups, n.heads, size // (n.groups * n.heads))
    return a.transpose(0, 2, 3, 1, 4)


def keys_of(a, n: Shape):
    """[B, G, T, D] or [B, T, G·D] as a view [B, G, T, D]."""
    if a is None or a.ndim == 4:
        return a
    b, t, size = a.shape
    return a.reshape(b, t, n.groups, size // n.groups).transpose(0, 2, 1, 3)


def scores_of(a, n: Shape):
    """Scores that are shown, or their gradient, as a view [B, G, n, S, T]."""
    if a is None:
        return None
    return a.reshape(n.batch, n.groups, n.heads, n.queries, n.keys)


def mask_of(mask, n: Shape):
    """A mask as a view [B, G, n, S, M] with sizes of one where it is broadcast."""
    if mask is None:
        return None
    b, h, s, m = (1,) * (4 - mask.ndim) + mask.shape
    return mask.reshape(b, *((1, 1) if h == 1 else (n.groups, n.heads)), s, m)


def part(mask, block: Block):
    """What a block sees of a mask: [B, G, S, M], of size one where it is broadcast."""
    whole: tuple[Any, ...] = (slice(None), slice(None), 0, slice(None))
    pairs = zip(mask.shape, block.queries, whole, strict=False)
    return mask[tuple(every if size == 1 else some for size, some, every in pairs)]


def take(buffer, shape):
    """The first elements of a flat buffer, as an array of `shape`."""
    return buffer[: math.prod(shape)].reshape(shape)


def load(xp, block: Block, past, new, buffer, n: Shape):
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


def scaled(xp, q, block: Block, buffer, n: Shape):
    """The queries of a block times the scale, in the type of the scores."""
    rows = q[block.queries]
    found = take(buffer, rows.shape)
    xp.copyto(found, rows)
    xp.multiply(found, n.scale, out=found)
    return found

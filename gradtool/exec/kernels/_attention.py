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

from gradtool.program import Spec

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
    def block(self) -> tuple[int, ...]:
        """The shape of the largest block of scores."""
        return (*self.at_once, self.keys)

    def blocks(self) -> Iterator[Block]:
        """Every block; `first` where it is the first one to read its keys."""
        batches, groups, rows = self.at_once
        for b in range(0, self.batch, batches):
            for g in range(0, self.groups, groups):
                first = True
                for head in range(self.heads):
                    for r in range(0, self.queries, rows):
                        yield Block(
                            slice(b, min(b + batches, self.batch)),
                            slice(g, min(g + groups, self.groups)),
                            head, slice(r, min(r + rows, self.queries)), first,
                        )  # fmt: skip
                        first = False


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
    return Shape(
        q.shape[0], groups, heads // groups, q.shape[-2], before + k.shape[-2], before, size,
        value_size, dtype, 1 / math.sqrt(size) if scale is None else scale, bool(is_causal),
        float(softcap or 0), (left_window_size, right_window_size),
    )  # fmt: skip


def heads_of(a, groups, heads):
    """`a`, [B, heads, S, D] or [B, S, heads · D], as a view [B, G, n, S, D]."""
    if a is None:
        return None
    if a.ndim == 3:
        a = a.reshape(a.shape[0], a.shape[1], groups * heads, -1).transpose(0, 2, 1, 3)
    b, _, s, d = a.shape
    if a.strides[1] * heads == a.strides[1] * heads and a.flags.c_contiguous:
        return a.reshape(b, groups, heads, s, d)
    return _split_axis(a, groups, heads)


def _split_axis(a, groups, heads):
    """`a.reshape` of axis 1 into two, as a view whatever the strides."""
    parts = [a[:, j::heads] for j in range(heads)]
    return parts

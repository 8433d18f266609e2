"""Operands of attention as its products take them, and their scores by rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Dim, Maybe, Tensor, ints
from gradtool.ops.attention.body_rows import Rows, rows_of

BOOL, FLOAT = ir.DataType.BOOL, ir.DataType.FLOAT
HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def wide(dtype: ir.DataType) -> ir.DataType:
    """The type of scores."""
    return FLOAT if dtype in HALF else dtype


def heads_of(
    q: Tensor, k: Tensor, q_num_heads: int | None, kv_num_heads: int | None
) -> tuple[int, ...]:
    """The numbers of heads of queries, and of keys."""
    if len(q.shape) == 3 and q_num_heads and kv_num_heads:
        return q_num_heads, kv_num_heads
    return ints((q.shape[1], k.shape[1]))


def split(op: Builder, a: Tensor, heads: int) -> Tensor:
    """[B, S, H · D] → [B, H, S, D]; an array that has such axes as it is."""
    if len(a.shape) == 4:
        return a
    b, s, size = a.shape
    return op.transpose(op.reshape(a, [b, s, heads, size // heads]), [0, 2, 1, 3])


def joined(op: Builder, a: Tensor, like: Tensor) -> Tensor:
    """The inverse of `split`."""
    if len(like.shape) == 4:
        return a
    return op.reshape_like(op.transpose(a, [0, 2, 1, 3]), like)


@dataclass(frozen=True)
class Form:
    """Layout of operands for products: each group of heads with its keys, where they share them.

    Masks are [B, H, S, T] with sizes of one where they are broadcast, in the order in which scores
    meet them.  Query `i` is at place `first + i` among keys, which end before `ends`.
    """

    op: Builder
    groups: Dim
    repeat: int
    masks: tuple[Tensor, ...]
    rows: Rows
    scale: float | Tensor
    fill: float
    softcap: float
    window: tuple[int, int]
    first: Tensor | None
    ends: Tensor | None

    @staticmethod
    def of(
        op: Builder, q: Tensor, k: Tensor, masks: Sequence[Tensor] = (),
        past: Tensor | None = None, lens: Tensor | None = None, *, groups: Dim, times: int = 1,
        scale: float | None = None, is_causal: int = 0, fill: float = -np.inf,
        softcap: float = 0.0, left_window_size: int = -1, right_window_size: int = -1, **_: Any,
    ) -> Form:  # fmt: skip
        """The form of queries [B, H, S, D] and all keys [B, G, T, D], of which `groups` is G."""
        repeat = 1
        if q.shape[1] != groups:
            heads, groups = ints([q.shape[1], groups])
            repeat = heads // groups
        rows = Rows.of([*list(q.shape)[:3], k.shape[2]], times)
        there = tuple(rows.padded(op, _grouped_mask(op, m, groups, repeat)) for m in masks)
        rank = 4 if repeat == 1 else 5
        ends = None if lens is None else op.unsqueeze(lens, list(range(1, rank)))
        first = None if past is None else op.size_of(past, 2, 3)
        first = first if ends is None else ends - op.size_of(q, 2, 3)
        window = left_window_size, 0 if is_causal else right_window_size
        factor = _inverse_root(op, q) if scale is None else scale
        return Form(
            op, groups, repeat, there, rows, factor, fill, softcap, window, first, ends
        )  # fmt: skip

    def by_row(self, a: Maybe, fill: float | None = None) -> Maybe:
        """[B, H, S, D] → [B, G, n, S, D], with `fill` or zeros to the end of the last block."""
        if a is None:
            return None
        if self.repeat != 1:
            b, _, s, d = a.shape
            a = self.op.reshape(a, [b, self.groups, self.repeat, s, d])
        return self.rows.padded(self.op, a, fill)

    def by_head(self, a: Tensor) -> Tensor:
        """[B, G, n, S, D] → [B, H, S, D]."""
        if self.repeat == 1:
            return a
        b, g, n, s, d = a.shape
        return self.op.reshape(a, [b, g * n, s, d])

    def keys(self, a: Tensor) -> Tensor:
        """[B, G, T, D] → [B, G, 1, T, D]."""
        return a if self.repeat == 1 else self.op.unsqueeze(a, 2)

    def of_keys(self, d: Tensor) -> Tensor:
        """[B, G, n, T, D] → [B, G, T, D], summed."""
        return d if self.repeat == 1 else self.op.sum(d, [2])

    def masked(
        self, s: Tensor, at: Tensor | None, *, turned: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Scores of the rows `at` behind the masks, and tanh of a soft cap.

        They are [..., rows, T], or `turned` [..., T, rows].
        """
        op = self.op
        s = op.cast(s, wide(s.dtype))
        bend = op.Tanh(s / self.softcap) if self.softcap else None
        s = s if bend is None else bend * self.softcap
        for mask in self.masks:
            seen = self.turned(mask, at) if turned else rows_of(op, mask, at)
            if mask.dtype == BOOL:
                s = op.Where(seen, s, op.constant(self.fill, s.dtype))
            else:
                s = s + op.cast(seen, s.dtype)
        return self.by_place(s, at, -np.inf, turned=turned), bend

    def by_place(self, s: Tensor, at: Tensor | None, fill: float, *, turned: bool) -> Tensor:
        """`s` of the rows `at`, with `fill` where causality, window and lengths forbid to look."""
        op, (left, right) = self.op, self.window
        if self.ends is None and self.window == (-1, -1):
            return s
        key, query = (-2, -1) if turned else (-1, -2)
        queries = _range(op, s, query) if at is None else at
        keys = op.unsqueeze(_range(op, s, key), int(turned))
        place = op.unsqueeze(queries, int(not turned))
        place = place if self.first is None else place + self.first
        seen = [] if self.ends is None else [op.Less(keys, self.ends)]
        if right >= 0:
            seen.append(op.LessOrEqual(keys, place + right if right else place))
        if left >= 0:
            seen.append(op.GreaterOrEqual(keys, place - left))
        return op.Where(reduce(op.And, seen), s, op.constant(fill, s.dtype))

    def turned(self, mask: Tensor, at: Tensor | None) -> Tensor:
        """The rows `at` of a mask, keys by queries."""
        return self.op.swap_axes(rows_of(self.op, mask, at), -2, -1)

    def of_mask(self, ds: Tensor, mask: Tensor) -> Tensor:
        """The gradient of scores, keys by queries, summed over the broadcast axes of a mask."""
        ds = self.by_head(self.op.swap_axes(ds, -2, -1))
        if self.rows.count == 1:
            ds = self.op.unbroadcast(ds, mask)
        else:
            broadcast = [axis for axis in range(3) if mask.shape[axis] == 1]
            ds = self.op.sum(ds, broadcast, keepdims=True)
        return self.op.cast(ds, mask.dtype)


def whole_mask(op: Builder, mask: Tensor, k: Tensor) -> Tensor:
    """A mask with four axes, continued with -inf or False to the number of keys [B, G, T, D]."""
    if len(mask.shape) < 4:
        mask = op.unsqueeze(mask, list(range(4 - len(mask.shape))))
    if mask.shape[3] == k.shape[2]:
        return mask
    missing = op.size_of(k, 2, 3) - op.size_of(mask, 3, 4)
    fill = 0.0 if mask.dtype == BOOL else -np.inf
    made = op.Pad(mask, op.Concat([0] * 7, missing, axis=0), op.constant(fill, mask.dtype))
    made.shape = ir.Shape([*mask.shape[:3], k.shape[2]])
    return made


def own_mask(op: Builder, dmask: Tensor, mask: Tensor) -> Tensor:
    """The gradient of a mask from that of `whole_mask`."""
    if dmask.shape[3] != mask.shape[-1]:
        dmask = op.Slice(dmask, [0], op.size_of(mask, -1, len(mask.shape)), [3])
    return dmask if len(mask.shape) == 4 else op.reshape_like(dmask, mask)


def _grouped_mask(op: Builder, mask: Tensor, groups: Dim, repeat: int) -> Tensor:
    """A mask [B, H, S, T] as it broadcasts to grouped scores."""
    if repeat == 1:
        return mask
    b, h, s, t = mask.shape
    return op.reshape(mask, [b, *((1, 1) if h == 1 else (groups, repeat)), s, t])


def _inverse_root(op: Builder, q: Tensor) -> Tensor | float:
    """One by the root of the size of a head."""
    size = q.shape[-1]
    if isinstance(size, int):
        return 1 / math.sqrt(size)
    root = op.Sqrt(op.cast(op.size(size), ir.DataType.DOUBLE))
    return op.cast(op.Reciprocal(root), q.dtype)


def _range(op: Builder, s: Tensor, axis: int) -> Tensor:
    """`0, 1, …` along an axis of `s`."""
    axis += len(s.shape)
    size = s.shape[axis]
    if isinstance(size, int):
        return op.constant(np.arange(size))
    return op.Range(0, op.Squeeze(op.size_of(s, axis, axis + 1), [0]), 1)

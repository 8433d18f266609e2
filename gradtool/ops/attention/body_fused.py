"""Attention that leaves one number per row to its gradient, by blocks of rows.

Queries are [B, H, S, D], keys and values [B, G, T, D], masks [B, H, S, T] with sizes of one where
they are broadcast.  A float mask is added to the scores, a boolean one puts `fill` where it is
false.  The kernels say the formulas and their source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Dim, Tensor, ints
from gradtool.ops.attention.body import _grouped, _grouped_mask, _merged, _range
from gradtool.ops.attention.body_rows import LESS, Rows, rows_of

BOOL, FLOAT = ir.DataType.BOOL, ir.DataType.FLOAT
HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def wide(dtype: ir.DataType) -> ir.DataType:
    """The type of scores."""
    return FLOAT if dtype in HALF else dtype


def _forward_shapes(q: Tensor, k: Tensor, v: Tensor, *masks: Tensor, **_: Any) -> Outputs:
    lead = list(q.shape)[:3]
    return [([*lead, v.shape[-1]], q.dtype), ([*lead, 1], wide(q.dtype))]


@composite("FusedAttention", shapes=_forward_shapes, outputs=2)
def fused_attention(
    op: Builder, q: Tensor, k: Tensor, v: Tensor, *masks: Tensor, scale: float,
    is_causal: int = 0, fill: float = -np.inf, safe: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`Y = exp(s - lse) v` and `lse = log Σ exp s` with `s = masked(q kᵀ · scale)`."""
    form = _Form.of(op, q, k, masks, fill, is_causal)
    q, k, v = form.by_row(q), form.keys(k), form.keys(v)
    keys = op.swap_axes(k, -2, -1)

    def block(_: Sequence[Tensor], at: Tensor | None) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Some rows of the result, and the logarithm of the sum of their scores."""
        s = form.masked(op.MatMul(rows_of(op, q, at) * scale, keys), at)
        axis = [len(s.shape) - 1]
        top = op.ReduceMax(s, axis, keepdims=1)
        if safe:
            top = op.Max(top, op.constant(float(np.finfo(s.dtype.numpy()).min), s.dtype))
        e = op.Exp(s - top)
        total = op.sum(e, axis, keepdims=True)
        if safe:
            none = op.Equal(total, 0.0)
            total = op.Where(none, op.constant(1.0, s.dtype), total)
            top = op.Where(none, op.constant(np.inf, s.dtype), top)
        y = op.MatMul(op.cast(e / total, v.dtype), v)
        return (), (form.by_head(y), form.by_head(top + op.Log(total)))

    _, (y, lse) = form.rows.each(op, (), block)
    return y, lse


def _backward_shapes(
    q: Tensor, k: Tensor, v: Tensor, lse: Tensor, dy: Tensor, dlse: Tensor | None,
    *masks: Tensor, of: Sequence[int] = (), **_: Any,
) -> Outputs:  # fmt: skip
    return [(a.shape, a.dtype) for a in (q, k, v, *(masks[i] for i in of))]


@composite("FusedAttentionGrad", shapes=_backward_shapes, outputs=3)
def fused_attention_grad(
    op: Builder, q: Tensor, k: Tensor, v: Tensor, lse: Tensor, dy: Tensor,
    dlse: Tensor | None, *masks: Tensor, scale: float, is_causal: int = 0,
    fill: float = -np.inf, safe: int = 0, of: Sequence[int] = (),
) -> list[Tensor]:  # fmt: skip
    """Gradients by q, k, v and the masks `of`.

        dv = pᵀ dy    dp = dy vᵀ    ds = p · (dp - Σ p dp + dlse)    dq = ds k · scale

    All is turned, keys by queries: no product is one of forward, which a runtime that merges equal
    nodes would keep for it.
    """
    form = _Form.of(op, q, k, masks, fill, is_causal, LESS if op.in_pieces else 1)
    likes = k, v
    k, v = form.keys(k), form.keys(v)
    q, dy, lse = form.by_row(q), form.by_row(dy), form.by_row(lse, np.inf)  # so that p is zero
    dlse = None if dlse is None else form.by_row(dlse)
    hidden = fill != -np.inf or not safe
    summed = [i for i in of if masks[i].shape[2] == 1]
    stacked = [i for i in of if i not in summed]

    def block(
        sums: Sequence[Tensor], at: Tensor | None
    ) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Contributions of some rows to the sums over all rows, and their own results."""
        q_, dy_, lse_ = (rows_of(op, a, at) for a in (q, dy, lse))
        q_ = q_ * scale
        s = form.masked(op.MatMul(k, op.swap_axes(q_, -2, -1)), at, turned=True)
        p = op.Exp(s - op.swap_axes(lse_, -2, -1))
        # `lse` has the digits of the scores: masks of -10⁹ leave none to the logarithm.
        total = op.sum(p, [len(p.shape) - 2], keepdims=True)
        p = p / op.Max(total, op.constant(float(np.finfo(p.dtype.numpy()).tiny), p.dtype))
        dv = op.MatMul(op.cast(p, dy_.dtype), dy_)
        dp = op.cast(op.MatMul(v, op.swap_axes(dy_, -2, -1)), p.dtype)
        row = op.sum(p * dp, [len(p.shape) - 2], keepdims=True)
        if dlse is not None:
            row = row - op.swap_axes(rows_of(op, dlse, at), -2, -1)
        ds = p * (dp - row)
        found = {}
        for i, mask in reversed(list(enumerate(form.masks))):
            if mask.dtype == BOOL and hidden:
                ds = op.Where(form.turned(mask, at), ds, op.constant(0.0, ds.dtype))
            if i in of:
                found[i] = form.of_mask(ds, masks[i])
        ds = op.cast(ds, q_.dtype)
        dk = op.MatMul(ds, q_)
        dq = op.MatMul(op.swap_axes(ds, -2, -1), k) * scale
        terms = [form.of_keys(dk), form.of_keys(dv), *(found[i] for i in summed)]
        terms = [a + b for a, b in zip(sums, terms, strict=True)] if sums else terms
        return terms, [form.by_head(dq), *(found[i] for i in stacked)]

    sums: list[Tensor] = []
    if form.rows.count > 1:
        sums = [op.zeros_like(a) for a in likes]
        sums += [op.zeros_like(masks[i]) for i in summed]
    (dk, dv, *added), (dq, *whole) = form.rows.each(op, sums, block)
    by_mask = dict(zip(summed, added, strict=True)) | dict(zip(stacked, whole, strict=True))
    return [dq, dk, dv, *(by_mask[i] for i in of)]


@dataclass(frozen=True)
class _Form:
    """Layout of operands for products: each group of heads with its keys, where they share them."""

    op: Builder
    groups: Dim
    repeat: int
    masks: tuple[Tensor, ...]
    rows: Rows
    fill: float
    causal: bool

    @staticmethod
    def of(
        op: Builder, q: Tensor, k: Tensor, masks: Sequence[Tensor], fill: float, causal: int,
        times: int = 1,
    ) -> _Form:  # fmt: skip
        groups: Dim = k.shape[1]
        repeat = 1
        if q.shape[1] != groups:
            heads, groups = ints([q.shape[1], groups])
            repeat = heads // groups
        rows = Rows.of([*list(q.shape)[:3], k.shape[2]], times)
        there = tuple(rows.padded(op, _grouped_mask(op, mask, groups, repeat)) for mask in masks)
        return _Form(op, groups, repeat, there, rows, fill, bool(causal))

    def by_row(self, a: Tensor, fill: float | None = None) -> Tensor:
        """[B, H, S, D] → [B, G, n, S, D], with `fill` or zeros to the end of the last block."""
        return self.rows.padded(self.op, _grouped(self.op, a, self.groups, self.repeat), fill)

    def by_head(self, a: Tensor) -> Tensor:
        """[B, G, n, S, D] → [B, H, S, D]."""
        return a if self.repeat == 1 else _merged(self.op, a)

    def keys(self, a: Tensor) -> Tensor:
        """[B, G, T, D] → [B, G, 1, T, D]."""
        return a if self.repeat == 1 else self.op.unsqueeze(a, 2)

    def of_keys(self, d: Tensor) -> Tensor:
        """[B, G, n, T, D] → [B, G, T, D], summed."""
        return d if self.repeat == 1 else self.op.sum(d, [2])

    def masked(self, s: Tensor, at: Tensor | None, *, turned: bool = False) -> Tensor:
        """Scores of the rows `at` behind the masks: [..., rows, T], or `turned` [..., T, rows]."""
        op = self.op
        s = op.cast(s, wide(s.dtype))
        for mask in self.masks:
            seen = self.turned(mask, at) if turned else rows_of(op, mask, at)
            if mask.dtype == BOOL:
                s = op.Where(seen, s, op.constant(self.fill, s.dtype))
            else:
                s = s + op.cast(seen, s.dtype)
        if not self.causal:
            return s
        key, query = (-2, -1) if turned else (-1, -2)
        queries = _range(op, s, query) if at is None else at
        keys = _range(op, s, key)
        seen = op.LessOrEqual(
            op.unsqueeze(keys, int(turned)), op.unsqueeze(queries, int(not turned))
        )
        return op.Where(seen, s, op.constant(-np.inf, s.dtype))

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

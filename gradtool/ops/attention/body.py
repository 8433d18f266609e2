"""Composites of the attention family.

Queries are [B, H, S, D], keys and values [B, G, T, D], masks [B, H, S, T] with sizes of one where
they are broadcast.  A float mask is added to the scores, a boolean one puts `fill` where it is
false.  The kernels say the formulas and their source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Dim, Tensor
from gradtool.operators.attention import Extras
from gradtool.ops.attention.body_form import (
    BOOL,
    Form,
    heads_of,
    joined,
    own_mask,
    split,
    whole_mask,
    wide,
)
from gradtool.ops.attention.body_rows import LESS, rows_of
from gradtool.ops.index.body import gather_grad

Block = tuple[Sequence[Tensor], Sequence[Tensor]]


def _forward_shapes(q: Tensor, k: Tensor, v: Tensor) -> Outputs:
    lead = list(q.shape)[:3]
    return [([*lead, v.shape[-1]], q.dtype), ([*lead, 1], wide(q.dtype))]


@composite("FusedAttention", shapes=_forward_shapes, outputs=2)
def fused_attention(
    op: Builder, q: Tensor, k: Tensor, v: Tensor, *masks: Tensor, safe: int = 0, **given: Any
) -> list[Tensor]:
    """`Y = exp(s - lse) v` and `lse = log Σ exp s` with `s = masked(q kᵀ · scale)`."""
    form = Form.of(op, q, k, masks, groups=k.shape[1], **given)
    return attend(op, form, q, k, v, safe=bool(safe))


def attend(
    op: Builder, form: Form, q: Tensor, k: Tensor, v: Tensor, *, safe: bool, statistic: bool = True
) -> list[Tensor]:
    """Y, and the `statistic` of rows; with `safe` a row of only -inf is zero."""
    q, k, v = form.by_row(q), form.keys(k), form.keys(v)
    keys = op.swap_axes(k, -2, -1)

    def block(_: Sequence[Tensor], at: Tensor | None) -> Block:
        """Some rows of the result, and the logarithm of the sum of their scores."""
        s, _bend = form.masked(op.MatMul(rows_of(op, q, at) * form.scale, keys), at)
        axis = [len(s.shape) - 1]
        top = op.ReduceMax(s, axis, keepdims=1)
        if safe:
            top = op.Max(top, _lowest(op, s))
        e = op.Exp(s - top)
        total = op.sum(e, axis, keepdims=True)
        if safe:
            none = op.Equal(total, 0.0)
            total = op.Where(none, op.constant(1.0, s.dtype), total)
            top = op.Where(none, op.constant(np.inf, s.dtype), top) if statistic else top
        y = form.by_head(op.MatMul(op.cast(e / total, v.dtype), v))
        return (), (y, form.by_head(top + op.Log(total))) if statistic else (y,)

    return form.rows.each(op, (), block)[1]


def _lowest(op: Builder, s: Tensor) -> Tensor:
    return op.constant(float(np.finfo(s.dtype.numpy()).min), s.dtype)


def _backward_shapes(
    q: Tensor, k: Tensor, v: Tensor, _lse: Tensor | None, _dy: Tensor, _dlse: Tensor | None = None,
    *rest: Tensor, of: Sequence[int] = (),
) -> Outputs:  # fmt: skip
    others = Extras.of(rest)
    shapes = [q.shape, k.shape, v.shape]
    for i, past in ((1, others.past_k), (2, others.past_v)):
        if past is not None:
            length = past.shape[2] + shapes[i][-2]
            shapes[i] = ir.Shape([*past.shape[:2], length, past.shape[3]])
    pairs = list(zip(shapes, (q.dtype, k.dtype, v.dtype), strict=True))
    return [*pairs, *((others.masks[i].shape, others.masks[i].dtype) for i in of)]


@composite("FusedAttentionGrad", shapes=_backward_shapes, outputs=3)
def fused_attention_grad(
    op: Builder, q: Tensor, k: Tensor, v: Tensor, lse: Tensor | None, dy: Tensor,
    dlse: Tensor | None = None, *rest: Tensor, safe: int = 0, of: Sequence[int] = (),
    qk_matmul_output_mode: int = 0, q_num_heads: int | None = None,
    kv_num_heads: int | None = None, **given: Any,
) -> list[Tensor]:  # fmt: skip
    """Gradients by q, all keys and values (past ones first) and the masks `of`.

    With `s = q kᵀ · scale`, `t = softcap(s)`, `p = softmax(t + masks)`, `y = p v`:

        dv = pᵀ dy    dp = dy vᵀ    dt = p · (dp - Σ p dp + dlse)    ds = dt · softcap'(s)
        dq = ds k · scale           dk = dsᵀ q · scale               dmask = dt, summed to its shape

    `lse` is the statistic of forward, if it has one.  Scores that forward shows add their gradient
    at the stage that it shows.  All is turned, keys by queries: no product is one of forward,
    which a runtime that merges equal nodes would keep for it.
    """
    heads, groups = heads_of(q, k, q_num_heads, kv_num_heads)
    others = Extras.of(rest)
    masks, past_k, past_v, dscores = others.masks, others.past_k, others.past_v, others.dscores
    own, dtype = (q, k, v), q.dtype  # values may have a type of their own; Y has that of queries
    q, dy = split(op, q, heads), split(op, dy, heads)
    k, v = split(op, k, groups), split(op, op.cast(v, dtype), groups)
    if past_k is not None:
        k, v = op.Concat(past_k, k, axis=2), op.Concat(op.cast(past_v, dtype), v, axis=2)
    whole = [whole_mask(op, mask, k) for mask in masks]
    times = LESS if op.in_pieces else 1
    form = Form.of(op, q, k, whole, past_k, others.lens, groups=groups, times=times, **given)
    shown = {} if dscores is None else {qk_matmul_output_mode: form.by_row(dscores)}
    backward = _Backward(
        op, form, form.keys(k), form.keys(v), form.by_row(q), form.by_row(dy),
        form.by_row(lse, np.inf),  # so that p is zero
        form.by_row(dlse), shown, {i: whole[i] for i in of},
        hidden=2 in shown or form.fill != -np.inf or not safe,
    )  # fmt: skip
    dq, dk, dv, dmasks = backward.gradients(k, v)
    if past_k is None:
        dk, dv = joined(op, dk, own[1]), joined(op, dv, own[2])
    found = [own_mask(op, dmasks[i], masks[i]) for i in of]
    return [joined(op, dq, own[0]), dk, op.cast(dv, own[2].dtype), *found]


@dataclass(frozen=True)
class _Backward:
    """Gradients by blocks of rows, of operands in the layout of a form.

    `shown` is by its stage the gradient of scores that forward shows; `wanted` by number the masks
    whose gradients are; `hidden` says that scores that a mask hides may have a gradient.
    """

    op: Builder
    form: Form
    k: Tensor
    v: Tensor
    q: Tensor
    dy: Tensor
    lse: Tensor | None
    dlse: Tensor | None
    shown: Mapping[int, Tensor]
    wanted: Mapping[int, Tensor]
    hidden: bool

    def gradients(
        self, k: Tensor, v: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Mapping[int, Tensor]]:
        """Gradients by queries, keys, values and masks, from keys and values [B, G, T, D]."""
        op, rows = self.op, self.form.rows
        summed = [i for i, mask in self.wanted.items() if mask.shape[2] == 1]
        stacked = [i for i in self.wanted if i not in summed]

        def block(sums: Sequence[Tensor], at: Tensor | None) -> Block:
            """Contributions of some rows to the sums over all rows, and their own results."""
            dk, dv, dq, found = self._of(at)
            terms = [dk, dv, *(found[i] for i in summed)]
            terms = [a + b for a, b in zip(sums, terms, strict=True)] if sums else terms
            return terms, [self.form.by_head(dq), *(found[i] for i in stacked)]

        sums: list[Tensor] = []
        if rows.count > 1:
            sums = [op.zeros_like(a) for a in (k, v, *(self.wanted[i] for i in summed))]
        (dk, dv, *added), (dq, *whole) = rows.each(op, sums, block)
        by_mask = zip((*summed, *stacked), (*added, *whole), strict=True)
        return dq, dk, dv, dict(by_mask)

    def _of(self, at: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Mapping[int, Tensor]]:
        """Contributions of the rows `at` to keys and values, and their own gradients."""
        op, form = self.op, self.form
        q, dy = rows_of(op, self.q, at), rows_of(op, self.dy, at)
        lse = None if self.lse is None else rows_of(op, self.lse, at)
        q = q * form.scale
        p, bend = self._probabilities(op.MatMul(self.k, op.swap_axes(q, -2, -1)), lse, at)
        dv = op.MatMul(op.cast(p, dy.dtype), dy)
        dp = op.cast(op.MatMul(self.v, op.swap_axes(dy, -2, -1)), p.dtype)
        dp = self._plus_shown(dp, 3, at)
        row = op.sum(p * dp, [len(p.shape) - 2], keepdims=True)
        row = row if self.dlse is None else row - form.turned(self.dlse, at)
        ds, found = self._behind_masks(p * (dp - row), at)
        ds = self._plus_shown(ds, 1, at)
        ds = ds if bend is None else ds * (1 - bend * bend)
        ds = op.cast(self._plus_shown(ds, 0, at), q.dtype)
        dk = op.MatMul(ds, q)
        dq = op.MatMul(op.swap_axes(ds, -2, -1), self.k) * form.scale
        return form.of_keys(dk), form.of_keys(dv), dq, found

    def _probabilities(
        self, s: Tensor, lse: Tensor | None, at: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Probabilities of the rows `at` from their scores, and tanh of a soft cap."""
        op = self.op
        s, bend = self.form.masked(s, at, turned=True)
        axis = [len(s.shape) - 2]
        if lse is None:
            top = op.Max(op.ReduceMax(s, axis, keepdims=1), _lowest(op, s))
        else:
            top = op.swap_axes(lse, -2, -1)
        p = op.Exp(s - top)
        # `lse` has the digits of the scores: masks of -10⁹ leave none to the logarithm.
        total = op.sum(p, axis, keepdims=True)
        least = op.constant(float(np.finfo(p.dtype.numpy()).tiny), p.dtype)
        return p / op.Max(total, least), bend

    def _behind_masks(self, ds: Tensor, at: Tensor | None) -> tuple[Tensor, Mapping[int, Tensor]]:
        """The gradient of scores before the masks, and those of masks."""
        op, form, found = self.op, self.form, {}
        if 2 in self.shown:
            ds = form.by_place(self._plus_shown(ds, 2, at), at, 0.0, turned=True)
        for i, mask in reversed(list(enumerate(form.masks))):
            if mask.dtype == BOOL and self.hidden:
                ds = op.Where(form.turned(mask, at), ds, op.constant(0.0, ds.dtype))
            if i in self.wanted:
                found[i] = form.of_mask(ds, self.wanted[i])
        return ds, found

    def _plus_shown(self, ds: Tensor, stage: int, at: Tensor | None) -> Tensor:
        """`ds`, plus the gradient of scores that are shown at a stage."""
        if stage not in self.shown:
            return ds
        return ds + self.op.cast(self.form.turned(self.shown[stage], at), ds.dtype)


@composite("RotaryTableGrad", like=(2, 2))
def rotary_table_grad(
    op: Builder, x: Tensor, dy: Tensor, table: Tensor, positions: Tensor | None = None, *,
    interleaved: int = 0, rotary_embedding_dim: int = 0, num_heads: int = 0,
) -> list[Tensor]:  # fmt: skip
    """`dcos = Σ dy₁ x₁ + dy₂ x₂` and `dsin = Σ dy₂ x₁ - dy₁ x₂`, over heads.

    `x₁, x₂` are the coordinates of the pairs that are rotated; rows of a table that several
    positions read get the sum.
    """
    if len(x.shape) == 3:
        x, dy = split(op, x, num_heads), split(op, dy, num_heads)
    size = rotary_embedding_dim or x.shape[3]
    (x1, x2), (d1, d2) = (_pairs(op, a, size, interleaved) for a in (x, dy))
    found = []
    for values in (d1 * x1 + d2 * x2, d2 * x1 - d1 * x2):
        total = op.sum(values, [1])
        if positions is not None:
            total = gather_grad(op, total, positions, op.shape(table))
        found.append(total)
    return found


def _pairs(op: Builder, a: Tensor, size: Dim, interleaved: int) -> tuple[Tensor, Tensor]:
    end = op.sizes([size])
    if interleaved:
        return op.Slice(a, [0], end, [3], [2]), op.Slice(a, [1], end, [3], [2])
    middle = op.sizes([size // 2])
    return op.Slice(a, [0], middle, [3]), op.Slice(a, middle, end, [3])

"""Composites of the attention family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Dim, Dims, Maybe, Tensor, ints
from gradtool.ops.index.body import gather_grad


def _shapes(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    past_k: Tensor | None,
    past_v: Tensor | None,
    *rest: Tensor | None,
    **attributes: Any,
) -> Outputs:
    values: list[tuple[Dims, ir.DataType]] = [(q.shape, q.dtype)]
    for new, past in ((k, past_k), (v, past_v)):
        shape = list(new.shape)
        if past is not None:
            shape = [*past.shape[:2], past.shape[2] + new.shape[-2], past.shape[3]]
        values.append((shape, new.dtype))
    return [*values, *([] if mask is None else [(mask.shape, mask.dtype)])]


@composite("AttentionGrad", shapes=_shapes, outputs=4)
def attention_grad(
    op: Builder, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, past_k: Tensor | None,
    past_v: Tensor | None, lens: Tensor | None, dy: Tensor, dscores: Tensor | None = None, *,
    scale: float | None = None, is_causal: int = 0, q_num_heads: int | None = None,
    kv_num_heads: int | None = None, softcap: float = 0.0, softmax_precision: int | None = None,
    qk_matmul_output_mode: int = 0, left_window_size: int = -1, right_window_size: int = -1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients by q, all keys and values (past ones first), and, if there is one, a mask.

    With `s = q kᵀ · scale`, `t = softcap(s)`, `p = softmax(t + bias)`, `y = p v`:

        dv = pᵀ dy     dp = dy vᵀ     dt = p · (dp - Σ p · dp)     ds = dt · softcap'(s)
        dq = ds k · scale             dk = dsᵀ q · scale           dbias = dt, summed to its shape

    `dscores` is the gradient of the scores that forward may show, at the stage it shows.
    """
    flat = len(q.shape) == 3
    heads, groups = heads_of(q, k, q_num_heads, kv_num_heads)
    repeat = 1 if heads == groups else heads // groups
    likes = q, k, v
    kind = v.dtype
    if kind != q.dtype:  # values may have a type of their own; results have that of the queries
        v = op.Cast(v, to=q.dtype)
        past_v = None if past_v is None else op.Cast(past_v, to=q.dtype)
    if flat:
        pairs = ((q, heads), (k, groups), (v, groups), (dy, heads))
        q, k, v, dy = (_split(op, a, h) for a, h in pairs)
    if past_k is not None:
        k, v = op.Concat(past_k, k, axis=2), op.Concat(past_v, v, axis=2)
    q, dy = _grouped(op, q, groups, repeat), _grouped(op, dy, groups, repeat)
    dscores = _grouped(op, dscores, groups, repeat)
    k, v = (op.unsqueeze(a, 2) if repeat != 1 else a for a in (k, v))
    factor = _inverse_root(op, q) if scale is None else scale

    s = op.MatMul(q * factor, op.swap_axes(k, -2, -1))
    bend = op.Tanh(s / softcap) if softcap else None
    s = s if bend is None else bend * softcap
    window = (left_window_size, right_window_size)
    allowed, bias, width = _bias(op, s, mask, past_k, lens, is_causal, window, groups, repeat)
    p = _softmax(op, s, allowed, bias)

    given = {} if dscores is None else {qk_matmul_output_mode: dscores}
    dv = op.MatMul(op.swap_axes(p, -2, -1), dy)
    dp = _plus(op.MatMul(dy, op.swap_axes(v, -2, -1)), given.get(3))
    dbias = _softmax_gradient(op, p, dp, allowed, given.get(2))
    ds = _plus(dbias, given.get(1))
    ds = _plus(ds if bend is None else ds * (1 - bend * bend), given.get(0))
    dq = op.MatMul(ds, k) * factor
    dk = op.MatMul(op.swap_axes(ds, -2, -1), q) * factor
    if repeat != 1:
        dk, dv = op.sum(dk, [2]), op.sum(dv, [2])
        dq, dbias = _merged(op, dq), _merged(op, dbias)
    if flat:
        dq = _joined(op, dq, likes[0])
    if flat and past_k is None:
        dk, dv = _joined(op, dk, likes[1]), _joined(op, dv, likes[2])
    if kind != likes[0].dtype:
        dv = op.Cast(dv, to=kind)
    return dq, dk, dv, *_mask_gradient(op, mask, width, dbias)


def _softmax_gradient(
    op: Builder, p: Tensor, dp: Tensor, allowed: Tensor | None, shown: Tensor | None
) -> Tensor:
    """Gradient of the scores, plus the gradient `shown` of their output; zero where masked."""
    ds: Tensor = p * (dp - op.sum(p * dp, [len(p.shape) - 1], keepdims=True))
    if shown is None:
        return ds
    ds = ds + shown
    return ds if allowed is None else op.Where(allowed, ds, op.constant(0.0, ds.dtype))


def heads_of(
    q: Tensor, k: Tensor, q_num_heads: int | None, kv_num_heads: int | None
) -> tuple[int, ...]:
    """The numbers of heads of queries, and of keys."""
    if len(q.shape) == 3 and q_num_heads and kv_num_heads:
        return q_num_heads, kv_num_heads
    return ints((q.shape[1], k.shape[1]))


def _mask_gradient(
    op: Builder, mask: Tensor | None, width: Tensor | None, dbias: Tensor
) -> tuple[Tensor, ...]:
    """The gradient of a float mask; nothing for any other."""
    if mask is None or mask.dtype == ir.DataType.BOOL:
        return ()
    if width is not None:
        dbias = op.Slice(dbias, [0], width, [3])
    return (op.unbroadcast(dbias, mask),)


def _inverse_root(op: Builder, q: Tensor) -> Tensor | float:
    """One by the root of the size of a head."""
    size = q.shape[-1]
    if isinstance(size, int):
        return 1 / math.sqrt(size)
    root = op.Sqrt(op.cast(op.size(size), ir.DataType.DOUBLE))
    return op.cast(op.Reciprocal(root), q.dtype)


def _plus(a: Tensor, b: Tensor | None) -> Tensor:
    return a if b is None else a + b


def _split(op: Builder, a: Tensor, heads: int) -> Tensor:
    """[B, S, H · D] → [B, H, S, D]."""
    b, s, size = a.shape
    return op.transpose(op.reshape(a, [b, s, heads, size // heads]), [0, 2, 1, 3])


def _joined(op: Builder, a: Tensor, like: Tensor) -> Tensor:
    """The inverse of `_split`."""
    return op.reshape_like(op.transpose(a, [0, 2, 1, 3]), like)


def _grouped(op: Builder, a: Maybe, groups: Dim, repeat: Dim) -> Maybe:
    """[B, G · n, S, D] → [B, G, n, S, D], where n is more than one."""
    if a is None:
        return None
    if repeat == 1:
        return a
    b, _, s, d = a.shape
    return op.reshape(a, [b, groups, repeat, s, d])


def _merged(op: Builder, a: Tensor) -> Tensor:
    """The inverse of `_grouped`."""
    b, g, n, s, d = a.shape
    return op.reshape(a, [b, g * n, s, d])


def _softmax(op: Builder, s: Tensor, allowed: Tensor | None, bias: Tensor | None) -> Tensor:
    """Softmax of the masked scores over the last axis; a row of only -inf is zero."""
    if allowed is None and bias is None:
        return op.Softmax(s, axis=-1)
    s = _plus(s, bias)
    if allowed is not None:
        s = op.Where(allowed, s, op.constant(-np.inf, s.dtype))
    axis = [len(s.shape) - 1]
    lowest = op.constant(float(np.finfo(s.dtype.numpy()).min), s.dtype)
    e = op.Exp(s - op.Max(op.ReduceMax(s, axis, keepdims=1), lowest))
    total = op.sum(e, axis, keepdims=True)
    return e / op.Where(op.Equal(total, 0.0), op.constant(1.0, s.dtype), total)


def _bias(
    op: Builder,
    s: Tensor,
    mask: Tensor | None,
    past_k: Tensor | None,
    lens: Tensor | None,
    causal: int,
    window: Sequence[int],
    groups: Dim,
    repeat: Dim,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """`(mask of keys to see, bias to add, width of the mask if it may be short)`, each or None."""
    allowed, bias, width = None, None, None
    if mask is not None:
        mask, width = _padded(op, mask, s)
        mask = _grouped_mask(op, mask, groups, repeat)
        allowed, bias = (mask, None) if mask.dtype == ir.DataType.BOOL else (None, mask)
    columns = _range(op, s, -1)
    ends = None if lens is None else op.unsqueeze(lens, list(range(1, len(s.shape))))
    if ends is not None:
        allowed = _and(op, allowed, op.Less(columns, ends))
    left, right = window
    if causal:
        right = 0
    if (left, right) == (-1, -1):
        return allowed, bias, width
    place = op.unsqueeze(_range(op, s, -2), 1)
    if ends is not None:
        place = place + (ends - op.size_of(s, len(s.shape) - 2, len(s.shape) - 1))
    elif past_k is not None:
        place = place + op.size_of(past_k, 2, 3)
    if right >= 0:
        allowed = _and(op, allowed, op.LessOrEqual(columns, place + right))
    if left >= 0:
        allowed = _and(op, allowed, op.GreaterOrEqual(columns, place - left))
    return allowed, bias, width


def _and(op: Builder, a: Tensor | None, b: Tensor) -> Tensor:
    return b if a is None else op.And(a, b)


def _range(op: Builder, s: Tensor, axis: int) -> Tensor:
    """`0, 1, …` along an axis of `s`."""
    axis += len(s.shape)
    size = s.shape[axis]
    if isinstance(size, int):
        return op.constant(np.arange(size))
    return op.Range(0, op.Squeeze(op.size_of(s, axis, axis + 1), [0]), 1)


def _padded(op: Builder, mask: Tensor, s: Tensor) -> tuple[Tensor, Tensor | None]:
    """The mask, continued with -inf or False to the number of keys, and its own width."""
    if mask.shape[-1] == s.shape[-1]:
        return mask, None
    rank, total = len(mask.shape), op.size_of(s, len(s.shape) - 1, len(s.shape))
    width = op.size_of(mask, rank - 1, rank)
    pads = op.Concat([0] * (2 * rank - 1), total - width, axis=0)
    fill = 0.0 if mask.dtype == ir.DataType.BOOL else -np.inf
    made = op.Pad(mask, pads, op.constant(fill, mask.dtype))
    made.shape = ir.Shape([*mask.shape[:-1], s.shape[-1]])
    return made, width


def _grouped_mask(op: Builder, mask: Tensor, groups: Dim, repeat: Dim) -> Tensor:
    """The mask as it broadcasts to grouped scores."""
    if repeat == 1 or len(mask.shape) < 3:
        return mask
    *lead, h, s, t = mask.shape
    return op.reshape(mask, [*lead, *((1, 1) if h == 1 else (groups, repeat)), s, t])


@composite("RotaryTableGrad", like=(2, 2))
def rotary_table_grad(
    op: Builder,
    x: Tensor,
    dy: Tensor,
    table: Tensor,
    positions: Tensor | None = None,
    *,
    interleaved: int = 0,
    rotary_embedding_dim: int = 0,
    num_heads: int = 0,
) -> list[Tensor]:
    """`dcos = Σ dy₁ x₁ + dy₂ x₂` and `dsin = Σ dy₂ x₁ - dy₁ x₂`, over heads.

    `x₁, x₂` are the coordinates of the pairs that are rotated; rows of a table that several
    positions read get the sum.
    """
    if len(x.shape) == 3:
        x, dy = _split(op, x, num_heads), _split(op, dy, num_heads)
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

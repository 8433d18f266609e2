"""Composites of the attention family."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from gradtool.functions import composite


def _shapes(q, k, v, mask, past_k, past_v, *rest, **attributes):
    values = [(q.shape, q.dtype)]
    for new, past in ((k, past_k), (v, past_v)):
        shape = list(new.shape)
        if past is not None:
            shape = [*past.shape[:2], past.shape[2] + new.shape[-2], past.shape[3]]
        values.append((shape, new.dtype))
    return [*values, *([] if mask is None else [(mask.shape, mask.dtype)])]


@composite("AttentionGrad", shapes=_shapes, outputs=4)
def attention_grad(
    op, q, k, v, mask, past_k, past_v, lens, dy, dscores=None, *,
    scale=None, is_causal=0, q_num_heads=None, kv_num_heads=None, softcap=0.0,
    softmax_precision=None, qk_matmul_output_mode=0, left_window_size=-1, right_window_size=-1,
):  # fmt: skip
    """Gradients by q, all keys and values (those of the past first), and, if there is one, a mask.

    With `s = q kᵀ · scale`, `t = softcap(s)`, `p = softmax(t + bias)`, `y = p v`:

        dv = pᵀ dy     dp = dy vᵀ     dt = p · (dp - Σ p · dp)     ds = dt · softcap'(s)
        dq = ds k · scale             dk = dsᵀ q · scale           dbias = dt, summed to its shape

    `dscores` is the gradient of the scores that forward may show, at the stage it shows.
    """
    flat = len(q.shape) == 3
    heads, groups = (q_num_heads, kv_num_heads) if flat else (q.shape[1], k.shape[1])
    repeat = heads // groups
    given_q, given_k, given_v = q, k, v
    if flat:
        q, k, v, dy = (_split(op, a, h) for a, h in ((q, heads), (k, groups), (v, groups), (dy, heads)))
    if past_k is not None:
        k, v = op.Concat(past_k, k, axis=2), op.Concat(past_v, v, axis=2)
    q, dy, dscores = (_grouped(op, a, groups, repeat) for a in (q, dy, dscores))
    k, v = (op.unsqueeze(a, 2) if repeat > 1 else a for a in (k, v))
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale

    mode = -1 if dscores is None else qk_matmul_output_mode
    s = op.MatMul(q * factor, op.swap_axes(k, -2, -1))
    bend = None
    if softcap:
        bend = op.Tanh(s / softcap)
        s = bend * softcap
    window = (left_window_size, right_window_size)
    allowed, bias, width = _bias(op, s, mask, past_k, lens, is_causal, window, groups, repeat, dy)
    if bias is not None:
        s = s + bias
    if allowed is not None:
        s = op.Where(allowed, s, op.constant(-np.inf, s.dtype))
    p = _softmax(op, s, safe=allowed is not None or bias is not None)

    dv = op.MatMul(op.swap_axes(p, -2, -1), dy)
    dp = op.MatMul(dy, op.swap_axes(v, -2, -1))
    if mode == 3:
        dp = dp + dscores
    ds = p * (dp - op.sum(p * dp, [len(p.shape) - 1], keepdims=True))
    if mode == 2:
        ds = ds + dscores
        ds = ds if allowed is None else op.Where(allowed, ds, op.constant(0.0, ds.dtype))
    dbias = ds
    if mode == 1:
        ds = ds + dscores
    if bend is not None:
        ds = ds * (1 - bend * bend)
    if mode == 0:
        ds = ds + dscores
    dq = op.MatMul(ds, k) * factor
    dk = op.MatMul(op.swap_axes(ds, -2, -1), q) * factor
    if repeat > 1:
        dk, dv = op.sum(dk, [2]), op.sum(dv, [2])
        dq, dbias = _merged(op, dq), _merged(op, dbias)
    if flat:
        dq = _joined(op, dq, given_q)
    if flat and past_k is None:
        dk, dv = _joined(op, dk, given_k), _joined(op, dv, given_v)
    if mask is None:
        return dq, dk, dv
    if mask.dtype == ir.DataType.BOOL:
        return dq, dk, dv, op.And(mask, op.constant(value=False, dtype=ir.DataType.BOOL))
    if width is not None:
        dbias = op.Slice(dbias, [0], width, [3])
    return dq, dk, dv, op.unbroadcast(dbias, mask)


def _split(op, a, heads):
    """[B, S, H · D] → [B, H, S, D]."""
    b, s, size = a.shape
    return op.transpose(op.reshape(a, [b, s, heads, size // heads]), [0, 2, 1, 3])


def _joined(op, a, like):
    """The inverse of `_split`."""
    return op.reshape_like(op.transpose(a, [0, 2, 1, 3]), like)


def _grouped(op, a, groups, repeat):
    """[B, G · n, S, D] → [B, G, n, S, D], where n is more than one."""
    if a is None or repeat == 1:
        return a
    b, _, s, d = a.shape
    return op.reshape(a, [b, groups, repeat, s, d])


def _merged(op, a):
    """The inverse of `_grouped`."""
    b, g, n, s, d = a.shape
    return op.reshape(a, [b, g * n, s, d])


def _softmax(op, s, *, safe):
    """Softmax over the last axis; if `safe`, a row of only -inf is zero."""
    if not safe:
        return op.Softmax(s, axis=-1)
    axis = [len(s.shape) - 1]
    lowest = op.constant(float(np.finfo(s.dtype.numpy()).min), s.dtype)
    e = op.Exp(s - op.Max(op.ReduceMax(s, axis, keepdims=1), lowest))
    total = op.sum(e, axis, keepdims=True)
    return e / op.Where(op.Equal(total, 0.0), op.constant(1.0, s.dtype), total)


def _bias(op, s, mask, past_k, lens, causal, window, groups, repeat, dy):
    """`(where looking is allowed, what is added, the width of the mask if it may be short)`."""
    allowed, bias, width = None, None, None
    total = op.size_of(s, len(s.shape) - 1, len(s.shape))
    if mask is not None:
        mask, width = _padded(op, mask, s, total)
        mask = _grouped_mask(op, mask, groups, repeat)
        if mask.dtype == ir.DataType.BOOL:
            allowed = mask
        else:
            bias = mask
    rows, columns = _range(op, s, -2), _range(op, s, -1)
    if lens is not None:
        ends = op.unsqueeze(lens, list(range(1, len(s.shape))))
        allowed = _and(op, allowed, op.Less(columns, ends))
    if causal or window != (-1, -1):
        if lens is not None:
            offset = ends - op.Squeeze(op.size_of(s, len(s.shape) - 2, len(s.shape) - 1), [0])
        elif past_k is not None:
            offset = op.Squeeze(op.size_of(past_k, 2, 3), [0])
        else:
            offset = op.constant(0)
        place = op.unsqueeze(rows, 1) + offset
        left, right = window
        if causal or right >= 0:
            bound = min(right, 0) if causal and right >= 0 else (0 if causal else right)
            allowed = _and(op, allowed, op.LessOrEqual(columns, place + bound))
        if left >= 0:
            allowed = _and(op, allowed, op.GreaterOrEqual(columns, place - left))
    return allowed, bias, width


def _and(op, a, b):
    return b if a is None else op.And(a, b)


def _range(op, s, axis):
    """`0, 1, …` along an axis of `s`."""
    axis += len(s.shape)
    if isinstance(s.shape[axis], int):
        return op.constant(np.arange(s.shape[axis]))
    return op.Range(0, op.Squeeze(op.size_of(s, axis, axis + 1), [0]), 1)


def _padded(op, mask, s, total):
    """The mask, continued with -inf or False to the number of keys, and its own width."""
    if mask.shape[-1] == s.shape[-1]:
        return mask, None
    rank = len(mask.shape)
    width = op.size_of(mask, rank - 1, rank)
    zeros = op.constant([0] * (2 * rank - 1))
    fill = np.asarray(False) if mask.dtype == ir.DataType.BOOL else np.asarray(-np.inf, mask.dtype.numpy())
    made = op.Pad(mask, op.Concat(zeros, total - width, axis=0), op.constant(fill))
    made.shape = ir.Shape([*mask.shape[:-1], s.shape[-1]])
    return made, width


def _grouped_mask(op, mask, groups, repeat):
    """The mask as it broadcasts to grouped scores."""
    if repeat == 1 or len(mask.shape) < 3:
        return mask
    *lead, h, s, t = mask.shape
    return op.reshape(mask, [*lead, *((1, 1) if h == 1 else (groups, repeat)), s, t])


@composite("RotaryTableGrad", like=(2, 2))
def rotary_table_grad(
    op, x, dy, table, positions=None, *, interleaved=0, rotary_embedding_dim=0, num_heads=0
):
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
            rows = op.unsqueeze(positions, 2)
            total = op.ScatterND(op.zeros_like(table), rows, total, reduction="add")
        found.append(total)
    return found


def _pairs(op, a, size, interleaved):
    if interleaved:
        return op.Slice(a, [0], [size], [3], [2]), op.Slice(a, [1], [size], [3], [2])
    return op.slice(a, 3, 0, size // 2), op.slice(a, 3, size // 2, size)

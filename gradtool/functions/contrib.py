"""Composites that stand for com.microsoft operators where the opset has no standard operator."""

from __future__ import annotations

import math

from gradtool.functions import composite
from gradtool.functions.attention import _bias, _grouped, _merged, _softmax, _split


def _shapes(
    q, k, v, mask=None, past_k=None, past_v=None, *, q_num_heads=None, kv_num_heads=None, **_
):
    flat = len(q.shape) == 3
    heads = q_num_heads if flat else q.shape[1]
    groups = kv_num_heads if flat else k.shape[1]
    size = v.shape[-1] // groups if flat else v.shape[-1]
    y = [*q.shape[:2], heads * size] if flat else [*q.shape[:3], size]
    shapes = [(y, q.dtype)]
    for new, past in ((k, past_k), (v, past_v)):
        width = new.shape[-1] // groups if flat else new.shape[-1]
        length = new.shape[-2] if past is None else past.shape[2] + new.shape[-2]
        shapes.append(([q.shape[0], groups, length, width], new.dtype))
    return shapes


@composite("ScaledAttention", shapes=_shapes, outputs=3)
def scaled_attention(
    op, q, k, v, mask=None, past_k=None, past_v=None, *,
    scale=None, is_causal=0, q_num_heads=None, kv_num_heads=None, softcap=0.0,
):  # fmt: skip
    """The operator Attention of opset 23: `softmax(q kᵀ · scale + mask) v`, all keys and values."""
    flat = len(q.shape) == 3
    heads, groups = (q_num_heads, kv_num_heads) if flat else (q.shape[1], k.shape[1])
    repeat = heads // groups
    like = q
    if flat:
        q, k, v = _split(op, q, heads), _split(op, k, groups), _split(op, v, groups)
    if past_k is not None:
        k, v = op.Concat(past_k, k, axis=2), op.Concat(past_v, v, axis=2)
    all_k, all_v = k, v
    q = _grouped(op, q, groups, repeat)
    k, v = (op.unsqueeze(a, 2) if repeat != 1 else a for a in (k, v))
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    s = op.MatMul(q * factor, op.swap_axes(k, -2, -1))
    s = op.Tanh(s / softcap) * softcap if softcap else s
    allowed, bias, _ = _bias(op, s, mask, past_k, None, is_causal, (-1, -1), groups, repeat)
    y = op.MatMul(_softmax(op, s, allowed, bias), v)
    y = _merged(op, y) if repeat != 1 else y
    if flat:
        size = y.shape[-1]
        y = op.reshape(op.transpose(y, [0, 2, 1, 3]), [like.shape[0], like.shape[1], heads * size])
    return y, all_k, all_v

"""Composites of com.microsoft operators, for opsets without a standard equivalent."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Dims, Tensor
from gradtool.ops.attention.body import (
    _bias,
    _grouped,
    _inverse_root,
    _merged,
    _softmax,
    _split,
    heads_of,
)


def _shapes(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    past_k: Tensor | None = None,
    past_v: Tensor | None = None,
    *,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
    **_: Any,
) -> Outputs:
    flat = len(q.shape) == 3
    heads, groups = heads_of(q, k, q_num_heads, kv_num_heads)
    size = v.shape[-1] // groups if flat else v.shape[-1]
    y = [*q.shape[:2], heads * size] if flat else [*q.shape[:3], size]
    shapes: list[tuple[Dims, ir.DataType]] = [(y, q.dtype)]
    for new, past in ((k, past_k), (v, past_v)):
        width = new.shape[-1] // groups if flat else new.shape[-1]
        length = new.shape[-2] if past is None else past.shape[2] + new.shape[-2]
        shapes.append(([q.shape[0], groups, length, width], new.dtype))
    return shapes


@composite("ScaledAttention", shapes=_shapes, outputs=3)
def scaled_attention(
    op: Builder, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None,
    past_k: Tensor | None = None, past_v: Tensor | None = None, *,
    scale: float | None = None, is_causal: int = 0, q_num_heads: int | None = None,
    kv_num_heads: int | None = None, softcap: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The operator Attention of opset 23: `softmax(q kᵀ · scale + mask) v`, all keys and values."""
    flat = len(q.shape) == 3
    heads, groups = heads_of(q, k, q_num_heads, kv_num_heads)
    repeat = heads // groups
    like = q
    if flat:
        q, k, v = _split(op, q, heads), _split(op, k, groups), _split(op, v, groups)
    if past_k is not None:
        k, v = op.Concat(past_k, k, axis=2), op.Concat(past_v, v, axis=2)
    all_k, all_v = k, v
    q = _grouped(op, q, groups, repeat)
    k, v = (op.unsqueeze(a, 2) if repeat != 1 else a for a in (k, v))
    factor = _inverse_root(op, q) if scale is None else scale
    s = op.MatMul(q * factor, op.swap_axes(k, -2, -1))
    s = op.Tanh(s / softcap) * softcap if softcap else s
    allowed, bias, _ = _bias(op, s, mask, past_k, None, is_causal, (-1, -1), groups, repeat)
    y = op.MatMul(_softmax(op, s, allowed, bias), v)
    y = _merged(op, y) if repeat != 1 else y
    if flat:
        size = y.shape[-1]
        y = op.reshape(op.transpose(y, [0, 2, 1, 3]), [like.shape[0], like.shape[1], heads * size])
    return y, all_k, all_v

"""Composites of com.microsoft operators, for opsets without a standard equivalent."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Dims, Tensor
from gradtool.ops.attention.body import attend
from gradtool.ops.attention.body_form import Form, heads_of, split, whole_mask


def _shapes(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, past_k: Tensor | None = None,
    past_v: Tensor | None = None, *,
    q_num_heads: int | None = None, kv_num_heads: int | None = None,
) -> Outputs:  # fmt: skip
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
    q_num_heads: int | None = None, kv_num_heads: int | None = None, **given: Any,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The operator Attention of opset 23: `softmax(q kᵀ · scale + mask) v`, all keys and values."""
    heads, groups = heads_of(q, k, q_num_heads, kv_num_heads)
    own = q
    q, k, v = split(op, q, heads), split(op, k, groups), split(op, v, groups)
    if past_k is not None:
        k, v = op.Concat(past_k, k, axis=2), op.Concat(past_v, v, axis=2)
    masks = [] if mask is None else [whole_mask(op, mask, k)]
    form = Form.of(op, q, k, masks, past_k, groups=groups, **given)
    (y,) = attend(op, form, q, k, v, safe=True, statistic=False)
    if len(own.shape) == 3:
        y = op.reshape(op.transpose(y, [0, 2, 1, 3]), [*own.shape[:2], heads * y.shape[3]])
    return y, k, v

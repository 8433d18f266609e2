"""Attention and rotary embedding of com.microsoft in standard operators."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import ModelError
from gradtool.graph.typed import Dim, Node, Tensor, static
from gradtool.passes._contrib_dense import inputs_of

ATTENTION = 23  # the opset of Attention and RotaryEmbedding


def refused(node: ir.Node, why: str) -> ModelError:
    """The error of a feature unsupported in training graphs."""
    return ModelError(f"{node.op_type} {node.name!r}: {why}, which is not supported")


def rotary_embedding(op: Builder, node: Node) -> Sequence[Tensor]:
    """RotaryEmbedding of com.microsoft, in standard operators."""
    x, positions, cos, sin = node.inputs
    given = node.attributes
    if given.get_int("is_packed_batching", 0) or given.get_float("scale", 1.0) != 1:
        raise refused(node, "is_packed_batching or scale is set")
    heads, size = given.get_int("num_heads", 0), given.get_int("rotary_embedding_dim", 0)
    sizes = [x.shape[-1], cos.shape[1]]
    if len(x.shape) == 3 and not heads and static(sizes):
        heads = sizes[0] // (2 * sizes[1])
    if len(positions.shape) == 1:
        positions = _counted(op, positions, x, 1 if len(x.shape) == 3 else 2)
    interleaved = given.get_int("interleaved", 0)
    return [_rotated(op, x, cos, sin, positions, interleaved, size, heads)]


def _counted(op: Builder, start: Tensor, x: Tensor, axis: int) -> Tensor:
    """The positions `start, start + 1, …` of each sample, [B, S]."""
    length = op.squeeze(op.size_of(x, axis, axis + 1), 0)
    row = op.unsqueeze(op.Range(0, length, 1) + op.cast(start, ir.DataType.INT64), 0)
    shape = op.sizes([x.shape[0], x.shape[axis]])
    return op.Expand(row, shape)


def _rotated(
    op: Builder,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    interleaved: int,
    size: Dim,
    heads: int,
) -> Tensor:
    """`x` turned by an angle for each position; `heads` is 0 where their number is open."""
    if op.opset >= ATTENTION and isinstance(size, int) and (heads or len(x.shape) == 4):
        return op.RotaryEmbedding(
            x, cos, sin, positions, interleaved=interleaved, rotary_embedding_dim=size,
            num_heads=heads if len(x.shape) == 3 else None,
        )  # fmt: skip
    like = x
    if len(x.shape) == 3:
        b, s, width = x.shape
        by_head = [b, s, heads, width // heads] if heads else [b, s, -1, 2 * cos.shape[1]]
        x = op.transpose(op.reshape(x, by_head), [0, 2, 1, 3])
    size = size or x.shape[3]
    cos, sin = (op.unsqueeze(op.Gather(table, positions, axis=0), 1) for table in (cos, sin))
    if interleaved:
        first, second = (op.slice(x, 3, k, size, 2) for k in (0, 1))
    else:
        first, second = op.slice(x, 3, 0, size // 2), op.slice(x, 3, size // 2, size)
    parts = [first * cos - second * sin, second * cos + first * sin]
    if interleaved:
        pairs = op.Concat(*(op.unsqueeze(p, 4) for p in parts), axis=4)
        parts = [op.reshape(pairs, [*x.shape[:3], size])]
    if size != x.shape[3]:
        parts.append(op.slice(x, 3, size, x.shape[3]))
    y = op.concat(parts, 3)
    return y if len(like.shape) == 4 else op.reshape_like(op.transpose(y, [0, 2, 1, 3]), like)


def _attention(op: Builder, *inputs: Tensor | None, **attributes: Any) -> Tensor:
    emit = op.Attention if op.opset >= ATTENTION else op.ScaledAttention
    return emit(*inputs, outputs=3, **attributes)


def _scale(node: ir.Node) -> float | None:
    return node.attributes.get_float("scale", 0.0) or None


def multi_head_attention(op: Builder, node: Node) -> Sequence[Tensor]:
    """MultiHeadAttention as one attention over `[batch, sequence, heads · size]` operands."""
    q, k, v, bias, padding, added, past_k, past_v, *rest = inputs_of(node, 10)
    if any(v is not None for v in rest):
        raise refused(node, "it shares buffers with the past")
    heads = node.attributes["num_heads"].as_int()
    q, k, v = _operands(op, q, k, v, heads)
    if bias is not None:
        sizes = [value.shape[-1] for value in (q, k, v)]
        ends = np.cumsum([0, *sizes]).tolist()
        parts = [op.slice(bias, 0, a, b) for a, b in pairwise(ends)]
        q, k, v = (a + b if len(a.shape) == 3 else a for a, b in zip((q, k, v), parts, strict=True))
    if len(k.shape) == 4 and len(q.shape) == 3:  # keys and values were projected before
        width = q.shape[2] // heads
        q = op.transpose(op.reshape(q, [*q.shape[:2], heads, width]), [0, 2, 1, 3])
    mask = _padding_mask(op, node, padding, q, k, past_k)
    if mask is not None and added is not None:
        added = mask + added
    mask = mask if added is None else added
    flat = len(q.shape) == 3
    y, all_k, all_v = _attention(
        op, q, k, v, mask, past_k, past_v, scale=_scale(node),
        is_causal=node.attributes.get_int("unidirectional", 0) or None,
        q_num_heads=heads if flat else None, kv_num_heads=heads if flat else None,
    )  # fmt: skip
    if not flat:
        b, h, s, width = y.shape
        y = op.reshape(op.transpose(y, [0, 2, 1, 3]), [b, s, h * width])
    return [y, all_k, all_v]


def _operands(
    op: Builder, q: Tensor, k: Tensor | None, v: Tensor | None, heads: int
) -> tuple[Tensor, ...]:
    """Query, key and value, unpacked if they come in one tensor: [B, S, N, parts, H]."""
    if k is None:
        return _unpacked(op, q, heads, 3)
    if v is None:
        return (q, *_unpacked(op, k, heads, 2))
    return q, k, v


def _unpacked(op: Builder, packed: Tensor, heads: int, count: int) -> tuple[Tensor, ...]:
    b, s, _, _, size = packed.shape
    parts = op.Split(packed, [1] * count, axis=3, outputs=count)
    return tuple(op.reshape(p, [b, s, heads * size]) for p in parts)


def _padding_mask(
    op: Builder,
    node: ir.Node,
    padding: Tensor | None,
    q: Tensor,
    k: Tensor,
    past: Tensor | None,
) -> Tensor | None:
    """The additive mask of padding keys, broadcast to [B, N, S, T]."""
    if padding is None:
        return None
    rank = len(padding.shape)
    if rank == 1:
        if padding.shape[0] != q.shape[0] or past is not None:
            raise refused(node, f"its key_padding_mask has shape {padding.shape}")
        axis = len(k.shape) - 2
        count = op.squeeze(op.size_of(k, axis, axis + 1), 0)
        ends = op.unsqueeze(op.cast(padding, ir.DataType.INT64), 1)
        kept = op.Less(op.unsqueeze(op.Range(0, count, 1), 0), ends)
    else:
        kept = op.cast(padding, ir.DataType.BOOL)
    value = node.attributes.get_float("mask_filter_value", -10000.0)
    mask = op.Where(kept, op.constant(0.0, q.dtype), op.constant(value, q.dtype))
    mask = op.unsqueeze(mask, 1 if rank == 3 else [1, 2])
    if rank == 3 or op.opset < ATTENTION:
        return mask
    rows = q.shape[-2]  # onnxruntime's Attention does not repeat the rows of a mask
    return op.Expand(mask, op.sizes([1, 1, rows, 1]))


def group_query_attention(op: Builder, node: Node) -> Sequence[Tensor]:
    """Causal attention whose keys serve several queries; the cache holds exactly the past."""
    names = (*inputs_of(node, 16),)
    q, k, v, past_k, past_v, _, _, cos, sin, positions, added, *rest = names
    given = node.attributes
    flags = ("smooth_softmax", "sliding_window_cache", "qk_output")
    if any(value is not None for value in rest) or any(given.get_int(f, 0) > 0 for f in flags):
        raise refused(node, "it has a quantized or windowed cache, a sink or a norm")
    heads, groups = given["num_heads"].as_int(), given["kv_num_heads"].as_int()
    if k is None:
        size = q.shape[2] // (heads + 2 * groups)
        q, k, v = op.Split(
            q, op.sizes([heads * size, groups * size, groups * size]), axis=2, outputs=3
        )
    if given.get_int("do_rotary", 0):
        if positions is None:
            start = op.constant([0]) if past_k is None else op.size_of(past_k, 2, 3)
            positions = _counted(op, start, q, 1)
        turn = given.get_int("rotary_interleaved", 0)
        size = 0 if 2 * cos.shape[1] == q.shape[2] // heads else 2 * cos.shape[1]
        q = _rotated(op, q, cos, sin, positions, turn, size, heads)
        k = _rotated(op, k, cos, sin, positions, turn, size, groups)
    window = given.get_int("local_window_size", -1)
    mask = added if window < 0 else _window_mask(op, q, past_k, window, added)
    softcap = given.get_float("softcap", 0.0)
    found = _attention(
        op, q, k, v, mask, past_k, past_v, scale=_scale(node),
        is_causal=given.get_int("causal", 1) or None, softcap=softcap or None,
        q_num_heads=heads, kv_num_heads=groups,
    )  # fmt: skip
    return tuple(found)


def _window_mask(
    op: Builder, q: Tensor, past: Tensor | None, window: int, added: Tensor | None
) -> Tensor:
    """A mask that hides keys more than `window` places before the query, on top of another."""
    length = op.squeeze(op.size_of(q, 1, 2), 0)
    before = op.constant(0) if past is None else op.squeeze(op.size_of(past, 2, 3), 0)
    rows = op.unsqueeze(op.Range(0, length, 1) + before, 1)
    columns = op.unsqueeze(op.Range(0, length + before, 1), 0)
    near = op.Less(rows - columns, window)
    if added is None:
        return near
    low = op.constant(float(np.finfo(added.dtype.numpy()).min), added.dtype)
    return op.Where(near, added, low)

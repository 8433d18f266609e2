"""Attention and rotary embedding of com.microsoft in standard operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import ModelError
from gradtool.graph import walk
from gradtool.graph.predicates import is_used
from gradtool.graph.typed import Dim, Node, Tensor, static
from gradtool.ops.attention.body_form import split
from gradtool.passes._contrib_dense import inputs_of, rms_norm
from gradtool.passes.parameters import ANGLES

WINDOWED = "gradtool.windowed"  # in the meta of an attention: the node that it stands for
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
    """The positions `start, start + 1, …` of any sample, [1, S]."""
    length = op.squeeze(op.size_of(x, axis, axis + 1), 0)
    return op.unsqueeze(op.Range(0, length, 1) + op.cast(start, ir.DataType.INT64), 0)


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
    """`x` turned by an angle for each position, `[B, S]` or `[1, S]` if samples have the same.

    `heads` is 0 where their number is open.
    """
    _mark_angles(cos, sin)
    if op.opset >= ATTENTION and isinstance(size, int) and (heads or len(x.shape) == 4):
        if positions.shape[0] == 1 and x.shape[0] != 1:
            positions = op.Expand(positions, op.sizes([x.shape[0], 1]))
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


def _mark_angles(*tables: Tensor) -> None:
    """Note the initializers that tables of angles are, or are chosen from: no parameters."""
    waiting: list[ir.Value | None] = list(tables)
    while waiting:
        value = waiting.pop()
        node = None if value is None else value.producer()
        if value is not None and value.is_initializer():
            value.meta[ANGLES] = True
        elif node is not None and value is not None:
            waiting += [branch.outputs[value.index() or 0] for branch in walk.subgraphs(node)]
            waiting += node.inputs


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
    inputs = inputs_of(node, len(_GROUP_INPUTS))
    q, k, v, past_k, past_v, _, _, cos, sin, positions, added, *rest = inputs
    given = node.attributes
    _refuse_unsupported(node, inputs)
    heads, groups = given["num_heads"].as_int(), given["kv_num_heads"].as_int()
    if k is None:
        size = q.shape[2] // (heads + 2 * groups)
        q, k, v = op.Split(
            q, op.sizes([heads * size, groups * size, groups * size]), axis=2, outputs=3
        )
    epsilon = given.get_float("qk_norm_epsilon", 1e-6)
    for_q, for_k = (given.get_float(f"{name}_norm_epsilon", epsilon) for name in "qk")
    q, k = _normed(op, q, heads, rest[3], for_q), _normed(op, k, groups, rest[4], for_k)
    if given.get_int("do_rotary", 0):
        if positions is None:
            start = op.constant([0]) if past_k is None else op.size_of(past_k, 2, 3)
            positions = _counted(op, start, q, 1)
        turn = given.get_int("rotary_interleaved", 0)
        size = 0 if 2 * cos.shape[1] == q.shape[2] // heads else 2 * cos.shape[1]
        q = _rotated(op, q, cos, sin, positions, turn, size, heads)
        k = _rotated(op, k, cos, sin, positions, turn, size, groups)
    window, causal = given.get_int("local_window_size", -1), given.get_int("causal", 1)
    sink = op.constant(0.0, q.dtype) if given.get_int("smooth_softmax", 0) > 0 else rest[0]
    behind = sink is not None and past_k is not None and bool(causal)
    hidden = window >= 0 or behind
    mask = _place_mask(op, q, past_k, window, added, causal=behind) if hidden else added
    options = {
        "scale": _scale(node), "is_causal": (0 if behind else causal) or None,
        "softcap": given.get_float("softcap", 0.0) or None,
    }  # fmt: skip
    if sink is None:
        options |= {"q_num_heads": heads, "kv_num_heads": groups}
        found = tuple(_attention(op, q, k, v, mask, past_k, past_v, **options))
    else:
        q, k, v = split(op, q, heads), split(op, k, groups), split(op, v, groups)
        if past_k is not None:
            k, v = op.Concat(past_k, k, axis=2), op.Concat(past_v, v, axis=2)
        found = _sunk(op, q, k, v, mask, sink, **options), k, v
    if given.get_int("sliding_window_cache", 0):
        producer = found[0].producer()
        assert producer is not None  # noqa: S101 - it was emitted here
        producer.meta[WINDOWED] = node.name
    return found


def _sunk(
    op: Builder, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sink: Tensor, **given: Any
) -> Tensor:
    """`Σ e^s v / (Σ e^s + e^sink)`: attention times σ(log Σ e^s - sink), of [B, H, S, D] operands.

    Source: OpenAI 2025 (arXiv:2508.10925), whose heads learn a score of nothing each.
    """
    masks = [] if mask is None else [op.unsqueeze(mask, list(range(4 - len(mask.shape))))]
    y, total = op.FusedAttention(q, k, v, *masks, outputs=2, **given)
    kept = op.Sigmoid(total - op.reshape(op.cast(sink, total.dtype), [1, -1, 1, 1]))
    y = op.transpose(y * op.cast(kept, y.dtype), [0, 2, 1, 3])
    b, s, heads, size = y.shape
    return op.reshape(y, [b, s, heads * size])


_GROUP_INPUTS = (
    "query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length",
    "cos_cache", "sin_cache", "position_ids", "attention_bias", "head_sink", "k_scale", "v_scale",
    "q_norm_weight", "k_norm_weight", "query_seqlens",
)  # fmt: skip
_UNSUPPORTED = ("k_scale", "v_scale", "query_seqlens")


def _refuse_unsupported(node: Node, inputs: Sequence[Tensor | None]) -> None:
    """Refuse a GroupQueryAttention with a quantised cache, or lengths of queries.

    Raises:
        ModelError: naming the input or the attribute.
    """
    given = node.attributes
    named = zip(_GROUP_INPUTS, inputs, strict=True)
    found = [name for name, value in named if name in _UNSUPPORTED and value is not None]
    found += ["qk_output"] if given.get_int("qk_output", 0) > 0 else []
    kinds = ("k_quant_type", "v_quant_type")
    found += [name for name in kinds if given.get_string(name, "NONE") not in ("NONE", "")]
    if len(node.inputs) > len(_GROUP_INPUTS):
        found.append(f"input {len(_GROUP_INPUTS)}")
    if found:
        raise refused(node, f"its {found[0]}")


def _normed(op: Builder, x: Tensor, heads: int, weight: Tensor | None, epsilon: float) -> Tensor:
    """`[B, S, heads · size]`, each head by its root mean square, times a weight `[size]`."""
    if weight is None:
        return x
    b, s, width = x.shape
    by_head = op.reshape(x, [b, s, heads, width // heads])
    y, _ = rms_norm(op, by_head, weight, -1, epsilon, deviation=False)
    return op.reshape_like(y, x)


def refuse_windowed_caches(graph: ir.Graph) -> None:
    """Refuse attention whose cache holds a window of keys alone, where it is still read or written.

    Raises:
        ModelError: naming the node.
    """
    for node in graph:
        held = (*node.inputs[4:6], *(v for v in node.outputs[1:3] if is_used(v)))
        if WINDOWED in node.meta and any(v is not None for v in held):
            raise ModelError(
                f"GroupQueryAttention {node.meta[WINDOWED]!r}: its sliding_window_cache, which is "
                "supported where the cache is empty (without --keep-cache)"
            )


def _place_mask(
    op: Builder, q: Tensor, past: Tensor | None, window: int, added: Tensor | None, *, causal: bool
) -> Tensor:
    """A mask over keys more than `window` places before the query, or after it; on another one."""
    length = op.squeeze(op.size_of(q, 1, 2), 0)
    before = op.constant(0) if past is None else op.squeeze(op.size_of(past, 2, 3), 0)
    rows = op.unsqueeze(op.Range(0, length, 1) + before, 1)
    columns = op.unsqueeze(op.Range(0, length + before, 1), 0)
    seen = [op.Less(rows - columns, window)] if window >= 0 else []
    seen += [op.LessOrEqual(columns, rows)] if causal else []
    near = reduce(op.And, seen)
    if added is None:
        return near
    low = op.constant(float(np.finfo(added.dtype.numpy()).min), added.dtype)
    return op.Where(near, added, low)

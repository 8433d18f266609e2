"""Operators of com.microsoft, which exporters and optimizers emit, in standard operators.

One function per operator: it gets the builder and the node, and returns what stands for the
node's outputs, as many as it has.

Source: the operators' documentation in onnxruntime (docs/ContribOperators.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.builder import Builder
from gradtool.errors import ModelError

DOMAIN = "com.microsoft"
ATTENTION = 23  # the opset of Attention, RotaryEmbedding and RMSNormalization
GELU = 20

Rule = Callable[[Any, ir.Node], Sequence[ir.Value | None]]


def is_contrib(node: ir.Node) -> bool:
    """Whether a node is one that can be replaced."""
    return (node.domain, node.op_type) in RULES


def lower_contrib(model: ir.Model) -> int:
    """Replace them all, in place; return how many there were. Shapes must have been inferred.

    Raises:
        ModelError: a node uses a feature that training graphs do not have.
    """
    nodes = [n for n in model.graph.all_nodes() if is_contrib(n)]
    op = Builder(model) if nodes else None
    for node in nodes:
        assert op is not None  # noqa: S101 - there are nodes
        _replace(op, node)
    if nodes and not any(n.domain == DOMAIN for n in model.graph.all_nodes()):
        model.graph.opset_imports.pop(DOMAIN, None)
    return len(nodes)


def _replace(op: Builder, node: ir.Node) -> None:
    with op.at(node, stage="forward", source="", prefix=node.name or node.op_type), op.arithmetic():
        made = RULES[node.domain, node.op_type](op, node)
        for index, before in enumerate(node.outputs):
            after = made[index] if index < len(made) else None
            if after is None:
                if before.uses() or before.is_graph_output():
                    raise _refused(node, f"its output {index} is read")
                continue
            if after.producer() not in op.emitted or after in made[:index]:
                after = op.Identity(after)
            name, before.name = before.name, None
            after.name = name or after.name
            before.replace_all_uses_with(after, replace_graph_outputs=True)
    assert node.graph is not None  # noqa: S101 - a node found in a graph
    node.graph.remove(node, safe=True)


def _refused(node: ir.Node, why: str) -> ModelError:
    return ModelError(f"{node.op_type} {node.name!r}: {why}, which is not supported")


def _inputs(node: ir.Node, count: int) -> list[Any]:
    return [*node.inputs, *[None] * count][:count]


# ---------------------------------------------------------------------------- elementwise


def _gelu(op: Any, x: Any, *, tanh: bool = False) -> Any:
    if op.opset >= GELU:
        return op.Gelu(x, approximate="tanh" if tanh else None)
    if tanh:
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (1 + op.Tanh(inner))
    return x * 0.5 * (1 + op.Erf(x * math.sqrt(0.5)))


def _plain_gelu(op: Any, node: ir.Node) -> Sequence[Any]:
    return [_gelu(op, node.inputs[0])]


def _bias_gelu(op: Any, node: ir.Node) -> Sequence[Any]:
    return [_gelu(op, op.Add(*node.inputs))]


def _fast_gelu(op: Any, node: ir.Node) -> Sequence[Any]:
    x, bias = _inputs(node, 2)
    return [_gelu(op, x if bias is None else x + bias, tanh=True)]


def _quick_gelu(op: Any, node: ir.Node) -> Sequence[Any]:
    x = node.inputs[0]
    return [x * op.Sigmoid(x * node.attributes.get_float("alpha", 1.702))]


def _fused_matmul(op: Any, node: ir.Node) -> Sequence[Any]:
    """`alpha · A' B'`, where ' may exchange the last axes, and move the first behind the batch."""
    given = node.attributes
    sides = []
    for value, which in zip(node.inputs, "AB", strict=True):
        rank = len(value.shape or ())
        perm = list(range(rank))
        if given.get_int(f"transBatch{which}", 0):
            perm = [*perm[1:-1], 0, perm[-1]]
        if given.get_int(f"trans{which}", 0) and rank > 1:
            perm[-2:] = perm[:-3:-1]
        sides.append(op.transpose(value, perm))
    alpha = given.get_float("alpha", 1.0)
    product = op.MatMul(*sides)
    return [product if alpha == 1 else product * alpha]


# -------------------------------------------------------------------------- normalization


def _skipped(op: Any, x: Any, skip: Any, bias: Any) -> Any:
    total = x + skip
    return total if bias is None else total + bias


def _skip_layer_norm(op: Any, node: ir.Node) -> Sequence[Any]:
    x, skip, scale, shift, bias = _inputs(node, 5)
    total = _skipped(op, x, skip, bias)
    epsilon = node.attributes.get_float("epsilon", 1e-12)
    made = op.LayerNormalization(total, scale, shift, axis=-1, epsilon=epsilon, outputs=3)
    return [*made, total]


def _rms_norm(
    op: Any, x: Any, scale: Any, axis: int, epsilon: float, *, deviation: bool
) -> tuple[Any, Any]:
    """`(x / √(mean x² + ε) · scale, 1 / √…)`, with the statistics in single precision."""
    if op.opset >= ATTENTION and not deviation:
        return op.RMSNormalization(x, scale, axis=axis, epsilon=epsilon), None
    axes = range(axis % len(x.shape), len(x.shape))
    small = x.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    wide = op.cast(x, ir.DataType.FLOAT) if small else x
    rstd = op.Reciprocal(op.Sqrt(op.mean(wide * wide, axes) + epsilon))
    return op.cast(wide * rstd, x.dtype) * scale, rstd


def _reads(node: ir.Node, index: int) -> bool:
    if index >= len(node.outputs):
        return False
    return bool(node.outputs[index].uses()) or node.outputs[index].is_graph_output()


def _simplified_layer_norm(op: Any, node: ir.Node) -> Sequence[Any]:
    x, scale = node.inputs[:2]
    axis = node.attributes.get_int("axis", -1)
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    return _rms_norm(op, x, scale, axis, epsilon, deviation=_reads(node, 1))


def _skip_simplified_layer_norm(op: Any, node: ir.Node) -> Sequence[Any]:
    x, skip, scale, bias = _inputs(node, 4)
    total = _skipped(op, x, skip, bias)
    epsilon = node.attributes.get_float("epsilon", 1e-12)
    y, rstd = _rms_norm(op, total, scale, -1, epsilon, deviation=_reads(node, 2))
    return [y, None, rstd, total]


# ------------------------------------------------------------------------------ attention


def _rotary_embedding(op: Any, node: ir.Node) -> Sequence[Any]:
    x, positions, cos, sin = node.inputs
    given = node.attributes
    if given.get_int("is_packed_batching", 0) or given.get_float("scale", 1.0) != 1:
        raise _refused(node, "is_packed_batching or scale is set")
    heads, size = given.get_int("num_heads", 0), given.get_int("rotary_embedding_dim", 0)
    if len(x.shape) == 3 and not heads:
        heads = x.shape[2] // (2 * cos.shape[1])
    if len(positions.shape) == 1:
        positions = _counted(op, positions, x, 1 if len(x.shape) == 3 else 2)
    interleaved = given.get_int("interleaved", 0)
    return [_rotated(op, x, cos, sin, positions, interleaved, size, heads)]


def _counted(op: Any, start: Any, x: Any, axis: int) -> Any:
    """The positions `start, start + 1, …` of each sample, [B, S]."""
    length = op.squeeze(op.size_of(x, axis, axis + 1), 0)
    row = op.unsqueeze(op.Range(0, length, 1) + op.cast(start, ir.DataType.INT64), 0)
    shape = op.sizes([x.shape[0], x.shape[axis]])
    return op.Expand(row, shape)


def _rotated(
    op: Any, x: Any, cos: Any, sin: Any, positions: Any, interleaved: int, size: int, heads: int
) -> Any:
    if op.opset >= ATTENTION:
        return op.RotaryEmbedding(
            x, cos, sin, positions, interleaved=interleaved, rotary_embedding_dim=size,
            num_heads=heads if len(x.shape) == 3 else None,
        )  # fmt: skip
    like = x
    if len(x.shape) == 3:
        b, s, width = x.shape
        x = op.transpose(op.reshape(x, [b, s, heads, width // heads]), [0, 2, 1, 3])
    size = size or x.shape[3]
    cos, sin = (op.unsqueeze(op.Gather(table, positions, axis=0), 1) for table in (cos, sin))
    if interleaved:
        first, second = (op.Slice(x, [k], [size], [3], [2]) for k in (0, 1))
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


def _attention(op: Any, *inputs: Any, **attributes: Any) -> Any:
    emit = op.Attention if op.opset >= ATTENTION else op.ScaledAttention
    return emit(*inputs, outputs=3, **attributes)


def _scale(node: ir.Node) -> float | None:
    return node.attributes.get_float("scale", 0.0) or None


def _multi_head_attention(op: Any, node: ir.Node) -> Sequence[Any]:
    q, k, v, bias, padding, added, past_k, past_v, *rest = _inputs(node, 10)
    if any(v is not None for v in rest):
        raise _refused(node, "it shares buffers with the past")
    heads = node.attributes["num_heads"].as_int()
    q, k, v = _operands(op, q, k, v, heads)
    if bias is not None:
        sizes = [value.shape[-1] for value in (q, k, v)]
        ends = np.cumsum([0, *sizes]).tolist()
        parts = [op.slice(bias, 0, a, b) for a, b in zip(ends, ends[1:], strict=False)]
        q, k, v = (
            a + b if len(a.shape) == 3 else a for a, b in zip((q, k, v), parts, strict=True)
        )
    if len(k.shape) == 4 and len(q.shape) == 3:  # keys and values were projected before
        width = q.shape[2] // heads
        q = op.transpose(op.reshape(q, [*q.shape[:2], heads, width]), [0, 2, 1, 3])
    mask = _padding_mask(op, node, padding, q, k, past_k)
    if mask is None or added is None:
        mask = added if mask is None else mask
    else:
        mask = mask + added
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


def _operands(op: Any, q: Any, k: Any, v: Any, heads: int) -> tuple[Any, Any, Any]:
    """Query, key and value, unpacked where they come in one tensor: [B, S, N, parts, H]."""
    if k is None:
        return _unpacked(op, q, heads, 3)  # type: ignore[return-value]
    if v is None:
        return (q, *_unpacked(op, k, heads, 2))  # type: ignore[return-value]
    return q, k, v


def _unpacked(op: Any, packed: Any, heads: int, count: int) -> tuple[Any, ...]:
    b, s, _, _, size = packed.shape
    parts = op.Split(packed, [1] * count, axis=3, outputs=count)
    return tuple(op.reshape(p, [b, s, heads * size]) for p in parts)


def _padding_mask(op: Any, node: ir.Node, padding: Any, q: Any, k: Any, past: Any) -> Any:
    """What is added to scores of keys that are padding, broadcast to [B, N, S, T]."""
    if padding is None:
        return None
    rank = len(padding.shape)
    if rank == 1:
        if padding.shape[0] != q.shape[0] or past is not None:
            raise _refused(node, f"its key_padding_mask has shape {padding.shape}")
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


def _group_query_attention(op: Any, node: ir.Node) -> Sequence[Any]:
    """Causal attention whose keys serve several queries; the cache holds exactly the past."""
    names = (*_inputs(node, 16),)
    q, k, v, past_k, past_v, lens, _, cos, sin, positions, added, *rest = names
    given = node.attributes
    flags = ("smooth_softmax", "sliding_window_cache", "qk_output")
    if any(value is not None for value in rest) or any(given.get_int(f, 0) > 0 for f in flags):
        raise _refused(node, "it has a quantized or windowed cache, a sink or a norm")
    heads, groups = given["num_heads"].as_int(), given["kv_num_heads"].as_int()
    if k is None:
        size = q.shape[2] // (heads + 2 * groups)
        q, k, v = op.Split(q, [heads * size, groups * size, groups * size], axis=2, outputs=3)
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
    return _attention(  # type: ignore[no-any-return]
        op, q, k, v, mask, past_k, past_v, scale=_scale(node),
        is_causal=given.get_int("causal", 1) or None, softcap=softcap or None,
        q_num_heads=heads, kv_num_heads=groups,
    )  # fmt: skip


def _window_mask(op: Any, q: Any, past: Any, window: int, added: Any) -> Any:
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


RULES: dict[tuple[str, str], Rule] = {
    (DOMAIN, "BiasGelu"): _bias_gelu,
    (DOMAIN, "FastGelu"): _fast_gelu,
    (DOMAIN, "FusedMatMul"): _fused_matmul,
    (DOMAIN, "Gelu"): _plain_gelu,
    (DOMAIN, "GroupQueryAttention"): _group_query_attention,
    (DOMAIN, "MultiHeadAttention"): _multi_head_attention,
    (DOMAIN, "QuickGelu"): _quick_gelu,
    (DOMAIN, "RotaryEmbedding"): _rotary_embedding,
    (DOMAIN, "SimplifiedLayerNormalization"): _simplified_layer_norm,
    ("", "SimplifiedLayerNormalization"): _simplified_layer_norm,
    (DOMAIN, "SkipLayerNormalization"): _skip_layer_norm,
    (DOMAIN, "SkipSimplifiedLayerNormalization"): _skip_simplified_layer_norm,
}

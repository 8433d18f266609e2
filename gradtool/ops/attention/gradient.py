"""Gradients of attention and of rotary embedding."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UnsupportedGradient
from gradtool.graph.typed import Dim, Node, Tensor, given
from gradtool.operators.attention import Extras
from gradtool.ops.gradients import Gradients, gradient


@gradient("Attention")
def attention(op: Builder, node: Node, *dys: Tensor) -> Gradients:
    """`Y, all keys, all values, scores = Attention(Q, K, V, mask, past K, past V, lengths)`.

    Of the forward pass only the inputs are kept.  The gradients of all keys are those of the past
    and those of K, joined.
    """
    k, v = node.inputs[1:3]
    mask, past_k, past_v, lens = (given(node, slot) for slot in range(3, 7))
    dy, dall_k, dall_v, dscores = (*dys, *(None,) * 4)[:4]
    if _unsure(*_heads(node)):
        raise UnsupportedGradient(node, "its number of heads is unknown; give it with --dim")
    if mask is not None and len(mask.shape) > 2 and not isinstance(mask.shape[-3], int):
        heads, groups = _heads(node)
        if heads != groups:
            raise UnsupportedGradient(
                node, "the number of heads of its mask is unknown; give it with --dim"
            )
    dq = dk = dv = dmask = None
    if dy is not None or dscores is not None:
        dy = op.zeros_like(node.outputs[0]) if dy is None else dy
        others = Extras([] if mask is None else [mask], dscores, past_k, past_v, lens)
        dq, dk, dv, *dmasks = _backward(op, node, (None, dy, None), others, safe=1)
        dmask = dmasks[0] if dmasks else None
    dk, dpast_k = _parted(op, k, past_k, dk, dall_k)
    dv, dpast_v = _parted(op, v, past_v, dv, dall_v)
    return dq, dk, dv, dmask, dpast_k, dpast_v


@gradient("ai.gradtool::FusedAttention")
def fused_attention(
    op: Builder, node: Node, dy: Tensor | None, dlse: Tensor | None = None
) -> Gradients:
    """`Y, lse = FusedAttention(Q, K, V, *masks)`: operands and `lse` are the residuals."""
    y, lse = op.all_outputs(node, 2)
    dy = op.zeros_like(y) if dy is None else dy
    return _backward(op, node, (lse, dy, dlse), Extras(node.inputs[3:]))


def _backward(
    op: Builder, node: Node, given: Sequence[Tensor | None], others: Extras, **options: int
) -> list[Tensor | None]:
    """The gradients of Q, all keys, all values and the masks, by blocks of rows.

    Probabilities are computed again.  A mask takes the square of the sequence, and so does its
    gradient: only those that are wanted are computed.
    """
    masks = others.masks
    of = [i for i, m in enumerate(masks) if m.dtype != ir.DataType.BOOL and m in op.active]
    dq, dk, dv, *dmasks = op.FusedAttentionGrad(
        *node.inputs[:3], *given, *others.inputs, outputs=3 + len(of), of=of or None,
        **options, **node.attributes,
    )  # fmt: skip
    found = dict(zip(of, dmasks, strict=True))
    return [dq, dk, dv, *(found.get(i) for i in range(len(masks)))]


def _heads(node: Node) -> tuple[Dim, Dim]:
    """The numbers of heads of queries, and of keys."""
    q, k = node.inputs[:2]
    if len(q.shape) == 4:
        return q.shape[1], k.shape[1]
    attributes = node.attributes
    return attributes["q_num_heads"].as_int(), attributes["kv_num_heads"].as_int()


def _unsure(heads: Dim, groups: Dim) -> bool:
    """Whether it is unknown how many heads of queries share one of keys."""
    return heads != groups and not (isinstance(heads, int) and isinstance(groups, int))


def _parted(
    op: Builder, new: Tensor, past: Tensor | None, used: Tensor | None, shown: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of new and past keys (or values), from the gradients of all.

    These come by their use, and by the output that shows them, which is [B, G, T, D].
    """
    flat = len(new.shape) == 3
    if past is None:
        if shown is not None and flat:
            shown = op.reshape_like(op.transpose(shown, [0, 2, 1, 3]), new)
        return _plus(used, shown), None
    total = _plus(used, shown)
    if total is None:
        return None, None
    sizes = op.Concat(op.size_of(past, 2, 3), op.size_of(new, -2, -1), axis=0)
    dpast, dnew = op.Split(total, sizes, axis=2, outputs=2)
    if flat:
        dnew = op.reshape_like(op.transpose(dnew, [0, 2, 1, 3]), new)
    return dnew, dpast


def _plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


@gradient("RotaryEmbedding")
def rotary_embedding(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = rotate(x, angle)`:  dx = rotate(dy, -angle); see RotaryTableGrad for the tables."""
    (x, cos, sin), positions = node.inputs[:3], given(node, 3)
    dx = op.RotaryEmbedding(dy, cos, -sin, positions, **node.attributes)
    dcos, dsin = op.RotaryTableGrad(x, dy, cos, positions, **node.attributes)
    return dx, dcos, dsin

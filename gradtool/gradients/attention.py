"""Gradients of attention and of rotary embedding."""

from __future__ import annotations

import onnx_ir as ir

from gradtool.errors import UnsupportedGradient
from gradtool.gradients import gradient


@gradient("Attention")
def attention(op, node, *dys):
    """`Y, all keys, all values, scores = Attention(Q, K, V, mask, past K, past V, lengths)`.

    Probabilities are computed again by AttentionGrad, in blocks; of the forward pass only the
    inputs are kept.  The gradients of all keys are those of the past and those of K, joined.
    """
    q, k, v, mask, past_k, past_v, lens = (*node.inputs, *(None,) * 7)[:7]
    dy, dall_k, dall_v, dscores = (*dys, *(None,) * 4)[:4]
    if _unsure(*_heads(node)):
        raise UnsupportedGradient(node, "its number of heads is unknown; give it with --dim")
    if mask is not None and len(mask.shape) > 2 and not isinstance(mask.shape[-3], int):
        heads, groups = _heads(node)
        if heads != groups:
            raise UnsupportedGradient(
                node, "the number of heads of its mask is unknown; give it with --dim"
            )
    dq = dmask = None
    if dy is not None or dscores is not None:
        dy = op.zeros_like(node.outputs[0]) if dy is None else dy
        count = 4 if mask is not None and mask.dtype != ir.DataType.BOOL else 3
        dq, dk, dv, *rest = op.AttentionGrad(
            q, k, v, mask, past_k, past_v, lens, dy, dscores, outputs=count, **node.attributes
        )
        dmask = rest[0] if rest else None
    else:
        dk = dv = None
    dk, dpast_k = _parted(op, k, past_k, dk, dall_k)
    dv, dpast_v = _parted(op, v, past_v, dv, dall_v)
    return dq, dk, dv, dmask, dpast_k, dpast_v


def _heads(node):
    """The numbers of heads of queries, and of keys."""
    q, k = node.inputs[:2]
    given = node.attributes
    if len(q.shape) == 4:
        return q.shape[1], k.shape[1]
    return given["q_num_heads"].as_int(), given["kv_num_heads"].as_int()


def _unsure(heads, groups):
    """Whether it is unknown how many heads of queries share one of keys."""
    return heads != groups and not (isinstance(heads, int) and isinstance(groups, int))


def _parted(op, new, past, used, shown):
    """The gradients of new and past keys (or values), from those of all.

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


def _plus(a, b):
    if a is None or b is None:
        return b if a is None else a
    return a + b


@gradient("RotaryEmbedding")
def rotary_embedding(op, node, dy):
    """`y = rotate(x, angle)`:  dx = rotate(dy, -angle); see RotaryTableGrad for the tables."""
    x, cos, sin, positions = (*node.inputs, None)[:4]
    dx = op.RotaryEmbedding(dy, cos, -sin, positions, **node.attributes)
    dcos, dsin = op.RotaryTableGrad(x, dy, cos, positions, **node.attributes)
    return dx, dcos, dsin

"""Attention written out, `softmax(scale · Q Kᵀ + masks) V`, as one node.

No matrix of scores or probabilities is then kept for backward.  Where anybody else reads one of
these it stays written out, and so does attention with a Dropout that drops.
"""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.constants import array
from gradtool.graph.devices import place_like
from gradtool.graph.typed import Tensor, as_tensor
from gradtool.passes._attention_operands import Operands, dims
from gradtool.passes._written_attention import Look, Written
from gradtool.passes.training_forms import stand_in


def fuse_attention(op: Builder, kept: AbstractSet[ir.Value]) -> int:
    """Put one node in the place of every attention of the graph; return how many there were.

    The values of `kept` are held by who calls: they stay.  Shapes must have been inferred.
    """
    look = Look(Operands(op, kept))
    count = 0
    for node in list(op.graph):
        found = look.at(node) if kept.isdisjoint(node.outputs) else None
        if found is None or not found.fits:
            continue
        start = len(op.emitted)
        with op.at(node, stage="forward", source="", prefix=node.name or ""), op.arithmetic():
            made = _fused(look.operands, found)
        for inner in op.emitted[start:]:
            place_like(inner, node, {})
        stand_in([made], node)
        count += 1
    return count


def _fused(look: Operands, found: Written) -> Tensor:
    """One node for attention, and the layouts of its operands."""
    op = look.op
    (q, a), (k, b) = look.unscaled(found.q), look.unscaled(found.k)
    q, k, v = as_tensor(q), as_tensor(k), as_tensor(found.v)
    k = look.turned(k) if found.turned else k
    if found.heads:
        heads, groups = found.heads
        q, k, v = (_split(op, x, n) for x, n in ((q, heads), (k, groups), (v, groups)))
    if found.lead:
        q, k, v = (look.shaped(x, [*found.lead, *dims(x)[-2:]]) for x in (q, k, v))
    scale = found.scale * a * b
    if float(np.float32(scale)) != scale and q.dtype == ir.DataType.DOUBLE:
        q, scale = q * scale, 1.0  # an attribute has single precision
    keys, values = look.by_group(k), look.by_group(v)
    if keys is not None and values is not None and dims(keys)[1] == dims(values)[1]:
        k, v = as_tensor(keys), as_tensor(values)
    flat = len(q.shape) == 3
    if flat:
        q, k, v = (op.unsqueeze(x, 0) for x in (q, k, v))
    pairs = list(zip(found.masks, found.inverted, strict=True))
    others = [pair for pair in pairs if not _is_causal(look, pair[0], found.fill, inverted=pair[1])]
    causal = found.causal or len(others) < len(pairs)
    masks = [op.Not(mask) if inverted else as_tensor(mask) for mask, inverted in others]
    masks = [op.unsqueeze(mask, list(range(4 - len(mask.shape)))) for mask in masks]
    finite = found.fill if found.fill not in (None, -math.inf) else None
    y, _ = op.FusedAttention(
        q, k, v, *masks, outputs=2, scale=float(np.float32(scale)), fill=finite,
        is_causal=int(causal) or None, safe=int(found.safe) or None,
    )  # fmt: skip
    if found.heads:
        joined = op.transpose(y, [0, 2, 1, 3])
        return op.reshape(joined, [joined.shape[0], joined.shape[1], -1])
    if found.lead:
        return op.reshape(y, [*dims(found.q)[:-1], dims(found.v)[-1]])
    return op.squeeze(y, 0) if flat else y


def _is_causal(look: Operands, mask: ir.Value, fill: float | None, *, inverted: bool) -> bool:
    """Whether a mask is known to hide all right of the diagonal, and nothing else."""
    known = None if mask in look.kept or mask.is_graph_input() else array(mask)
    if known is None or known.ndim < 2 or known.shape[-2] == 1:
        return False
    if known.dtype == np.bool_:
        seen = known != inverted
        hides = fill in (None, -math.inf)
    else:
        seen = known == 0
        hides = bool(np.all(known[~seen] == -np.inf))
    return hides and bool(np.all(seen == np.tril(np.ones(known.shape[-2:], np.bool_))))


def _split(op: Builder, x: Tensor, heads: int) -> Tensor:
    """[B, S, H · D] → [B, H, S, D]."""
    b, s, width = x.shape
    return op.transpose(op.reshape(x, [b, s, heads, width // heads]), [0, 2, 1, 3])

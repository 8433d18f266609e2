"""Attention: products with every key, whether a mask hides it or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.operators.attention import Extras, Shape, shape_of
from gradtool.ops.costs import cost
from gradtool.ops.shared.element_counts import Results, Shaped, size, wanted


def _scores(n: Shape) -> int:
    return n.batch * n.groups * n.heads * n.queries * n.keys


def _masked(n: Shape, q: Shaped, masks: Sequence[Any]) -> int:
    """The scores `softcap(q scale · kᵀ)`, and every float mask added."""
    added = sum(1 for mask in masks if mask.dtype != np.bool_)
    return size(q) + _scores(n) * (2 * n.size + (3 if n.softcap > 0 else 0) + added)


def _attended(n: Shape, q: Shaped, masks: Sequence[Any]) -> int:
    """`exp(s - max) v / Σ`, with the sum of each row divided out at the end."""
    rows = n.batch * n.groups * n.heads * n.queries
    return _masked(n, q, masks) + 4 * _scores(n) + (2 * _scores(n) + rows) * n.value_size


@cost("Attention", "ai.gradtool::ScaledAttention")
def attention(
    q: Shaped, k: Shaped, v: Shaped, mask: Any = None, past_k: Any = None, _past_v: Any = None,
    _lens: Any = None, *, out: Results, **attributes: Any,
) -> int:  # fmt: skip
    """Y, and the probabilities where they are shown."""
    n = shape_of(q, k, v, past_k, **attributes)
    count = _attended(n, q, [] if mask is None else [mask])
    shown = wanted(out, 3) and attributes.get("qk_matmul_output_mode", 0) == 3
    return count + (_scores(n) if shown else 0)


@cost("ai.gradtool::FusedAttention")
def fused_attention(
    q: Shaped, k: Shaped, v: Shaped, *masks: Any, out: Results, **given: Any
) -> int:
    """Y, and `lse = max + log Σ`."""
    n = shape_of(q, k, v, **given)
    rows = n.batch * n.groups * n.heads * n.queries
    return _attended(n, q, masks) + (2 * rows if wanted(out, 1) else 0)


@cost("ai.gradtool::FusedAttentionGrad")
def fused_attention_grad(
    q: Shaped, k: Shaped, v: Shaped, lse: Shaped | None, _dy: Shaped, dlse: Shaped | None = None,
    *rest: Any, out: Results, **given: Any,
) -> int:  # fmt: skip
    """The probabilities are computed again: two operations each with `lse`, else five.

    dv = pᵀ dy    dp = dy vᵀ    ds = p (dp - Σ p dp + dlse)    dq = ds k scale    dk = dsᵀ q
    """
    others = Extras.of(rest)
    n = shape_of(q, k, v, others.past_k, **given)
    scores, rows = _scores(n), n.batch * n.groups * n.heads * n.queries
    count = _masked(n, q, others.masks) + scores * (
        (5 if lse is None else 2) + 2 * n.value_size + 4
    )
    count += rows if dlse is not None else 0
    count += scores if others.dscores is not None else 0
    count += 3 * scores if n.softcap > 0 else 0
    if wanted(out, 0):
        count += 2 * scores * n.size + size(q)
    count += 2 * scores * n.size if wanted(out, 1) else 0
    count += 2 * scores * n.value_size if wanted(out, 2) else 0
    return count + scores * sum(spec is not None for spec in out[3:])


def _rotated(x: Shaped, heads: int, part: int) -> int:
    """Elements that a rotation changes: the first `part` coordinates of each head, or all."""
    width = x.shape[3] if len(x.shape) == 4 else x.shape[2] // max(heads, 1)
    return size(x) if not part or not width else size(x) // width * part


@cost("RotaryEmbedding")
def rotary_embedding(x: Shaped, *, num_heads: int = 0, rotary_embedding_dim: int = 0) -> int:
    """`(x₁ cos - x₂ sin, x₁ sin + x₂ cos)`: six operations per pair."""
    return 3 * _rotated(x, num_heads, rotary_embedding_dim)

"""Gradients of the composites that com.microsoft operators become."""

from __future__ import annotations

from gradtool.gradients import gradient
from gradtool.gradients.attention import attention


@gradient("ai.gradtool::ScaledAttention")
def scaled_attention(op, node, *dys):
    """As that of Attention, for opsets without this operator."""
    return attention(op, node, *dys)

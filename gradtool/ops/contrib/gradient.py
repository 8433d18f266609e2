"""Gradients of the composites that com.microsoft operators become."""

from __future__ import annotations

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Node, Tensor
from gradtool.ops.attention.gradient import attention
from gradtool.ops.gradients import Gradients, gradient


@gradient("ai.gradtool::ScaledAttention")
def scaled_attention(op: Builder, node: Node, *dys: Tensor) -> Gradients:
    """As that of Attention, for opsets without this operator."""
    return attention(op, node, *dys)

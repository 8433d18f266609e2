"""Traits of the operators of the contrib family."""

from __future__ import annotations

from gradtool.ops.traits import traits

traits(
    "ai.gradtool::ScaledAttention",
    recompute="product",
    residuals="k, mask, past_k, past_v, q, v",
)

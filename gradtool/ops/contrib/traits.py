"""Traits of the operators of the contrib family."""

from gradtool.ops.traits import traits

traits(
    "ai.gradtool::ScaledAttention", recompute="product", residuals="k, mask, past_k, past_v, q, v"
)

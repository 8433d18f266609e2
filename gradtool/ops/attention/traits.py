"""Traits of the operators of the attention family."""

from gradtool.ops.traits import traits

traits("ai.gradtool::FusedAttentionGrad", recompute="product")
traits("ai.gradtool::FusedAttention", recompute="product", residuals="k, masks, output 1, q, v")
traits(
    "Attention",
    recompute="product",
    residuals="attn_mask, K, nonpad_kv_seqlen, past_key, past_value, Q, V",
)
traits("CausalConvWithState LinearAttention", onnxruntime="body")
traits("RotaryEmbedding", residuals="cos_cache, position_ids, sin_cache, X")

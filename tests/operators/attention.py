"""Cases of the attention family: queries [B, H, S, D], keys and values [B, G, T, D]."""

from __future__ import annotations

import numpy as np
from cases import case, fixed, floats, integers

B, H, S, T, D, E = 2, 4, 3, 5, 4, 6
RNG = np.random.default_rng(1)


def attention(*shapes, mask=None, past=None, lens=None, opset=23, **options):
    inputs = [*shapes, mask, *(past or (None, None)), lens]
    while inputs[-1] is None:
        inputs.pop()
    case("Attention", *inputs, opset=opset, **options)


def flags(*shape, hidden=()):
    """A boolean mask; the rows `hidden` see nothing."""
    made = RNG.random(shape) > 0.4
    made[..., 0] = True
    for row in hidden:
        made[row] = False
    return made


QKV = (B, H, S, D), (B, H, T, D), (B, H, T, E)
GROUPED = (B, H, S, D), (B, 2, T, D), (B, 2, T, E)
FLAT = (B, S, H * D), (B, T, 2 * D), (B, T, 2 * E)
HEADS = {"q_num_heads": H, "kv_num_heads": 2}
PAST = (B, H, 2, D), (B, H, 2, E)
GROUPED_PAST = (B, 2, 2, D), (B, 2, 2, E)

for forms in (QKV, GROUPED, ((B, H, S, D), (B, 1, T, D), (B, 1, T, E))):
    attention(*forms)
    attention(*forms, is_causal=1)
    attention(*forms, scale=0.3, softcap=1.5)
    attention(*forms, mask=flags(B, 1, S, T, hidden=[(0, 0, 1)]))
    attention(*forms, mask=floats(B, H, S, T))
    attention(*forms, mask=floats(S, T), is_causal=1)
    attention(*forms, outputs=3)
attention(*FLAT, **HEADS)
attention(*FLAT, **HEADS, is_causal=1, softcap=2.0)
attention(*FLAT, **HEADS, mask=flags(B, H, S, T))
attention(*FLAT, **HEADS, past=GROUPED_PAST, outputs=3)
attention(*FLAT, **HEADS, outputs=3)
attention((B, S, H * D), (B, T, H * D), (B, T, H * E), q_num_heads=H, kv_num_heads=H)
attention((1, 1, 1, 2), (1, 1, 1, 2), (1, 1, 1, 3))

# onnxruntime broadcasts masks over batch and heads, not over queries, and wants all keys in them.
for shape in ((H, S, T), (1, 1, S, T), (1, H, S, T), (B, 1, S, T)):
    attention(*QKV, mask=floats(*shape))
    attention(*GROUPED, mask=flags(*shape), is_causal=1)
for shape in ((B, 1, 1, T), (T,), (1, T), (S, 1), (S, 3), (B, H, S, 3)):
    attention(*QKV, mask=floats(*shape), ort=False)
    attention(*GROUPED, mask=flags(*shape), ort=False)
attention(
    *QKV, mask=np.where(flags(B, 1, S, T, hidden=[(1, 0, 2)]), 0.0, -np.inf).astype("float32")
)

for options in ({}, {"is_causal": 1}, {"mask": floats(S, T + 2)}, {"softcap": 1.5}):
    attention(*QKV, past=PAST, outputs=3, **options)
attention(*GROUPED, past=GROUPED_PAST, outputs=3, is_causal=1)
attention(*GROUPED, past=GROUPED_PAST, ort=False)  # onnxruntime wants all present outputs

for mode in range(4):
    for options in ({}, {"softcap": 1.5}, {"softcap": 1.5, "mask": floats(B, 1, S, T)}):
        attention(*GROUPED, outputs=4, qk_matmul_output_mode=mode, **options)
attention(*QKV, outputs=4, qk_matmul_output_mode=3, mask=flags(B, 1, S, T, hidden=[(0, 0, 1)]))
attention(*QKV, outputs=4, qk_matmul_output_mode=3, is_causal=1, mask=floats(S, T))

for lens in ([3, 5], [0, 4], [2, 1]):
    attention(*QKV, lens=integers(lens), opset=24)
    attention(*GROUPED, lens=integers(lens), opset=24, is_causal=1)
attention(*QKV, lens=integers([3, 5]), opset=24, mask=floats(S, T))
attention(*QKV, softmax_precision=1)

TABLE, POSITIONS = (10, 3), np.asarray([[0, 4, 9, 4], [2, 2, 1, 7]], dtype=np.int64)
for interleaved in (0, 1):
    for size, table in ((0, (10, 3)), (4, (10, 2))):
        options = {"interleaved": interleaved, "rotary_embedding_dim": size, "opset": 23}
        half = table[1]
        case("RotaryEmbedding", (2, 3, 4, 6), table, table, POSITIONS, **options)
        case("RotaryEmbedding", (2, 3, 4, 6), (2, 4, half), (2, 4, half), **options)
        case("RotaryEmbedding", (2, 4, 18), table, table, POSITIONS, num_heads=3, **options)
        tables = [fixed(2, 4, half)] * 2
        case("RotaryEmbedding", (2, 4, 18), *tables, num_heads=3, **options)

# Attention that leaves one number per row to its gradient, as a pass makes it of plain operators.
FUSED = "ai.gradtool::FusedAttention"
for forms in (QKV, GROUPED):
    case(FUSED, *forms, outputs=2, scale=0.5)
    case(FUSED, *forms, floats(B, H, S, T), outputs=2, scale=1.0)
    case(FUSED, *forms, flags(B, 1, S, T), outputs=2, scale=0.5)
    case(FUSED, *forms, floats(1, H, S, T), flags(B, 1, 1, T), outputs=2, scale=0.5)
    case(FUSED, *forms, flags(1, 1, S, T), floats(B, 1, 1, T), outputs=2, scale=0.5, fill=-3.0)
    case(FUSED, *forms, floats(1, 1, S, T), floats(B, 1, S, T), outputs=2, scale=0.5)
    case(FUSED, *forms, outputs=2, scale=0.5, is_causal=1)
    case(FUSED, *forms, flags(B, 1, S, T, hidden=[(0, 0, 1)]), scale=0.5, safe=1)

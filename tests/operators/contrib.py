"""Composites that com.microsoft operators become."""

from __future__ import annotations

from cases import case, fixed

ATTENTION = "ai.gradtool::ScaledAttention"
QKV = ((2, 4, 3, 5), (2, 4, 6, 5), (2, 4, 6, 5))

case(ATTENTION, *QKV, outputs=3)
case(ATTENTION, *QKV, (1, 1, 3, 6), outputs=3, scale=0.5, is_causal=1)
case(ATTENTION, *QKV, None, (2, 4, 2, 5), (2, 4, 2, 5), outputs=3, is_causal=1)
case(ATTENTION, (2, 4, 3, 5), (2, 2, 6, 5), (2, 2, 6, 5), fixed(3, 6), outputs=3, softcap=2.0)
case(ATTENTION, (2, 3, 20), (2, 6, 10), (2, 6, 10), outputs=3, q_num_heads=4, kv_num_heads=2)

"""Draws: one operation for a number between 0 and 1, and the operations of its distribution."""

from __future__ import annotations

from gradtool.ops.costs import cost, each
from gradtool.ops.shared.element_counts import Results, Shaped, made, size

each({
    "Bernoulli": 2,  # draw < p
    "RandomNormal": 3,  # draw · scale + mean
    "RandomNormalLike": 3,
    "RandomUniform": 3,  # draw · (high - low) + low
    "RandomUniformLike": 3,
})  # fmt: skip


@cost("Multinomial")
def multinomial(x: Shaped, *, out: Results) -> int:
    """`Σ exp(x - max)` as it runs; for each sample a draw, scaled, and a binary search in it."""
    return 4 * size(x) + made(out) * (2 + x.shape[1].bit_length())

"""Draws: one operation for a number between 0 and 1, and the operations of its distribution."""

from gradtool.ops.costs import counts, each
from gradtool.ops.shared.element_counts import made, size

each({
    "Bernoulli": 2,  # draw < p
    "RandomNormal": 3,  # draw · scale + mean
    "RandomNormalLike": 3,
    "RandomUniform": 3,  # draw · (high - low) + low
    "RandomUniformLike": 3,
})  # fmt: skip

counts({
    # `Σ exp(x - max)` as it runs; for each sample a draw, scaled, and a binary search in it
    "Multinomial": lambda x, *, out: 4 * size(x) + made(out) * (2 + x.shape[1].bit_length()),
})  # fmt: skip

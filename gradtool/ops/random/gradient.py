"""Random numbers: no gradient passes through a draw."""

from __future__ import annotations

from gradtool.ops.gradients import zero_gradient

zero_gradient(
    "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike",
    "Bernoulli", "Multinomial",
)  # fmt: skip

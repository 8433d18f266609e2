"""Cases of the random family: draws are no subject of comparison, their shapes and types are."""

from __future__ import annotations

from cases import case, fixed

drawn = {"gradient": False, "ort": False, "seed": 3.0}
case("RandomNormal", shape=[2, 3], **drawn, mean=1.0, scale=0.1)
case("RandomUniform", shape=[2, 3], **drawn, low=2.0, high=3.0)
for name in ("RandomNormalLike", "RandomUniformLike"):
    case(name, fixed(2, 3), **drawn)
    case(name, fixed(2, 3), **drawn, dtype=10)
case("Bernoulli", fixed(3, 4, low=0, high=1), **drawn)
case("Bernoulli", fixed(3, 4, low=0, high=1), **drawn, dtype=7)
case("Multinomial", fixed(2, 5), **drawn, sample_size=4)

"""Conventions of the random family at kinks, ties and poles."""
# fmt: off

from gradtool.ops.conventions import convention

convention(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli",
     "Multinomial"),
    "everywhere", "none", "their outputs are kept, not drawn again",
)

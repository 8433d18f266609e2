"""Conventions of the vision family at kinks, ties and poles."""
# fmt: off

from gradtool.ops.conventions import Example, convention

convention(
    ("RoiAlign",), "mode max: weighted corners tie", "the first, by sample, then by corner", "",
    (
        Example("RoiAlign", ([[[[2.0, 2.0], [2.0, 2.0]]]], [[0.5, 0.5, 1.5, 1.5]], [0]),
                ([[[[0.25, 0.0], [0.0, 0.0]]]], None),
                {"mode": "max", "sampling_ratio": 1}),
    ),
)

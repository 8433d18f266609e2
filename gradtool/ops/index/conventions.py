"""Conventions of the index family at kinks, ties and poles."""
# fmt: off

from gradtool.ops.conventions import Example, convention

convention(
    ("TopK", "ArgMax", "ArgMin"), "elements tie", "the lowest index", "by the specification",
    (Example("TopK", ([1.0, 3.0, 3.0], [1]), ([0.0, 1.0, 0.0], None)),),
)
convention(
    ("Gather", "GatherElements", "GatherND"), "an index occurs twice",
    "added, in a fixed order", "",
    (
        Example("Gather", ([5.0, 6.0], [0, 0]), ([2.0, 0.0], None)),
        Example("GatherElements", ([5.0, 6.0], [1, 1]), ([0.0, 2.0], None)),
    ),
)
convention(
    ("ScatterElements", "ScatterND"), "max or min: updates and data tie; mul",
    "1/(k + 1) each; exclusive products", "none: duplicates are undefined by the specification",
    (
        Example("ScatterElements", ([4.0], [0, 0], [4.0, 4.0]), ([1 / 3], None, [1 / 3, 1 / 3]),
                {"reduction": "max"}),
        Example("ScatterElements", ([2.0], [0, 0], [0.0, 3.0]), ([0.0], None, [6.0, 0.0]),
                {"reduction": "mul"}),
    ),
)

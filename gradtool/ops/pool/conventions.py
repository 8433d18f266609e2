"""Conventions of the pool family at kinks, ties and poles."""
# fmt: off

from math import nan

from gradtool.ops.conventions import Example, convention

convention(
    ("MaxPool",), "elements tie", "the first of the window", "through the saved Indices",
    (
        Example("MaxPool", ([[[1.0, 1.0, 0.0]]],), ([[[1.0, 1.0, 0.0]]],),
                {"kernel_shape": [2]}),
    ),
)
convention(
    ("MaxPool",), "a NaN in the window", "to the NaN, the last of several",
    "as PyTorch; stock onnxruntime overlooks it",
    (
        Example("MaxPool", ([[[nan, 1.0, nan]]],), ([[[0.0, 0.0, 1.0]]],),
                {"kernel_shape": [3]}),
    ),
)

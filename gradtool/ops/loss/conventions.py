"""Conventions of the loss family at kinks, ties and poles."""
# fmt: off

from gradtool.ops.conventions import Example, convention

convention(
    ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"), "every label is ignored", "0",
    "the loss itself stays NaN",
    (
        Example("SoftmaxCrossEntropyLoss", ([[1.0, 2.0]], [7]), ([[0.0, 0.0]], None),
                {"ignore_index": 7}),
        Example("NegativeLogLikelihoodLoss", ([[1.0, 2.0]], [7]), ([[0.0, 0.0]], None),
                {"ignore_index": 7}),
    ),
)

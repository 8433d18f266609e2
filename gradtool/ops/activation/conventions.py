"""Conventions of the activation family at kinks, ties and poles."""
# fmt: off

from math import inf, nan

from gradtool.ops.conventions import Example, convention, unary

convention(
    ("Relu", "ThresholdedRelu", "Shrink"), "0, alpha, ±lambd", "0", "all frameworks agree",
    (
        unary("Relu", 0.0, 0.0),
        unary("ThresholdedRelu", 0.5, 0.0, alpha=0.5),
        Example("Shrink", ([-0.5, 0.5],), ([0.0, 0.0],), {"lambd": 0.5}),
    ),
)
convention(
    ("LeakyRelu", "PRelu"), "x = 0", "dx: the slope; dslope: 0", "JAX: 1",
    (
        unary("LeakyRelu", 0.0, 0.25, alpha=0.25),
        Example("PRelu", ([0.0], [0.25]), ([0.25], [0.0])),
    ),
)
convention(
    ("Elu", "Selu", "Celu"), "x = 0", "the left value: alpha; scale · alpha; 1", "",
    (
        unary("Elu", 0.0, 0.5, alpha=0.5),
        unary("Selu", 0.0, 3.0, alpha=1.5, gamma=2.0),
        unary("Celu", 0.0, 1.0, alpha=2.0),
    ),
)
convention(
    ("HardSigmoid", "HardSwish"), "the ends; -3 and 3", "0; 0 and 1", "",
    (
        Example("HardSigmoid", ([-2.0, 2.0],), ([0.0, 0.0],), {"alpha": 0.25}),
        Example("HardSwish", ([-3.0, 3.0],), ([0.0, 1.0],)),
    ),
)
convention(("Softsign",), "x = 0", "1", "", (unary("Softsign", 0.0, 1.0),))
convention(
    ("Softmax", "LogSoftmax", "Sigmoid", "Softplus"), "large numbers, masks of -inf",
    "exact and finite", "a row of -inf only: NaN",
    (
        Example("Softmax", ([[1000.0, 0.0, -inf]],), ([[0.0, 0.0, 0.0]],),
                dy=[[1.0, 2.0, 3.0]]),
        Example("LogSoftmax", ([[1000.0, 0.0]],), ([[-2.0, 2.0]],), dy=[[1.0, 2.0]]),
        unary("Sigmoid", -1000.0, 0.0),
        unary("Softplus", 1000.0, 1.0),
    ),
)
convention(
    ("Relu", "Max", "Min", "ReduceMax", "ReduceMin"), "x is NaN",
    "dy passes, to the NaN; ReduceMax: NaN", "a NaN stays visible",
    (
        unary("Relu", nan, 1.0),
        Example("Max", ([nan], [1.0]), ([1.0], [0.0])),
    ),
)
convention(
    ("Dropout",), "ratio 1; the mask", "0; that of this forward pass, saved",
    "never drawn again",
)

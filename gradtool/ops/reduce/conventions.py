"""Conventions of the reduce family at kinks, ties and poles."""
# fmt: off

from gradtool.ops.conventions import Example, convention

convention(
    ("ReduceMax", "ReduceMin"), "k elements tie", "1/k each", "",
    (
        Example("ReduceMax", ([2.0, 1.0, 2.0],), ([0.5, 0.0, 0.5],)),
        Example("ReduceMin", ([1.0, 1.0, 2.0],), ([0.5, 0.5, 0.0],)),
    ),
)
convention(
    ("ReduceL2", "LpNormalization", "ReduceL1"), "the zero vector", "0", "JAX, TensorFlow: NaN",
    (
        Example("ReduceL2", ([0.0, 0.0],), ([0.0, 0.0],)),
        Example("ReduceL1", ([0.0, 0.0],), ([0.0, 0.0],)),
        Example("LpNormalization", ([[0.0, 0.0]],), ([[0.0, 0.0]],)),
    ),
)
convention(
    ("ReduceProd", "CumProd"), "zeros among the factors", "exact: exclusive products",
    "never y / x; TensorFlow's CumProd is wrong here",
    (
        Example("ReduceProd", ([0.0, 2.0, 3.0],), ([6.0, 0.0, 0.0],)),
        Example("ReduceProd", ([0.0, 0.0, 3.0],), ([0.0, 0.0, 0.0],)),
    ),
)

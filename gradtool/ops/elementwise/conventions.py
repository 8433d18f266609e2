"""Conventions of the elementwise family at kinks, ties and poles."""
# fmt: off

from math import inf, nan

from gradtool.ops.conventions import Example, convention, unary

convention(
    ("Clip",), "x on a bound", "dx: 1; dmin = dmax = 0",
    "JAX: 1/2. PyTorch's relu6 and hardtanh: 0",
    (
        Example("Clip", ([-1.0, 2.0], -1.0, 2.0), ([1.0, 1.0], 0.0, 0.0)),
        Example("Clip", ([0.0, 5.0], 3.0, 1.0), ([0.0, 0.0], 0.0, 2.0)),
    ),
)
convention(("Abs", "Sign"), "x = 0", "0", "JAX: 1 for Abs", (unary("Abs", 0.0, 0.0),))
convention(
    ("Max", "Min"), "k inputs tie", "1/k each", "the order of the inputs must not matter",
    (
        Example("Max", ([2.0], [2.0]), ([0.5], [0.5])),
        Example("Min", ([2.0], [3.0], [2.0]), ([0.5], [0.0], [0.5])),
    ),
)
convention(
    ("Sqrt", "Reciprocal", "Log", "Acos", "Atanh"), "the pole (0; 1 of Acos and Atanh)",
    "the infinity of the formula", "hiding it hides bugs",
    (
        unary("Sqrt", 0.0, inf),
        unary("Reciprocal", 0.0, -inf),
        unary("Log", 0.0, inf),
        unary("Acos", 1.0, -inf),
        unary("Atanh", 1.0, inf),
    ),
)
convention(("Log",), "x < 0, where y is NaN", "1 / x", "", (unary("Log", -2.0, -0.5),))
convention(
    ("Pow",), "(0, 0); (0, 1/2); (0, -1)", "0, 0; inf; -inf, -inf", "",
    (
        Example("Pow", ([0.0], [0.0]), ([0.0], [0.0])),
        Example("Pow", ([0.0], [0.5]), ([inf], None)),
        Example("Pow", ([-0.0], [0.5]), ([inf], None)),
        Example("Pow", ([0.0], [-1.0]), ([-inf], [-inf])),
    ),
)
convention(
    ("Pow",), "x < 0", "by the exponent: NaN",
    "only if asked for: that of a constant exponent is not computed",
    (Example("Pow", ([-2.0], [2.0]), ([-4.0], [nan])),),
)
convention(
    ("Div",), "a / 0, 0 / 0", "the formula", "",
    (
        Example("Div", ([1.0], [0.0]), ([inf], [-inf])),
        Example("Div", ([0.0], [0.0]), ([inf], [nan])),
    ),
)
convention(
    ("Where",), "the branch not taken is not finite", "NaN", "as in Where(x > 0, Log(x), 0)",
)
convention(
    ("Floor", "Ceil", "Round", "ArgMax", "ArgMin"), "everywhere",
    "0, listed as zero by definition", "a silently missing gradient is worse",
    (unary("Floor", 0.5, 0.0), unary("Ceil", 0.5, 0.0), unary("Round", 0.3, 0.0)),
)
convention(("Cast",), "to integers", "0, listed as zero by definition")
convention(
    ("Mod",), "everywhere", "1, -floor(a / b); fmod = 1: 1, -trunc(a / b)", "",
    (Example("Mod", ([-7.5], [2.0]), ([1.0], [3.0]), {"fmod": 1}),),
)

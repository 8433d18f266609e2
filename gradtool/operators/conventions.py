"""The value of a gradient where mathematics leaves a choice: at kinks, ties and poles.

PyTorch's value where frameworks differ, unless the ONNX specification decides; symmetric in
symmetric inputs; never a silent mask over a NaN.  The examples are tested by exact equality, and
the table is printed in `docs/operators.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any

Numbers = tuple[Any, ...]


@dataclass(frozen=True)
class Example:
    """Inputs of one operator and the gradients of `Σ dy · y`, with `dy = 1` unless it is given.

    Integers and truth values are constants, other inputs float32; `None` in the gradients is not
    looked at.
    """

    op: str
    inputs: Numbers
    gradients: Numbers
    attributes: Mapping[str, Any] = field(default_factory=dict)
    dy: Any = None
    opset: int = 20


@dataclass(frozen=True)
class Convention:
    """A row of the table: where, which gradient, and what others do."""

    operators: tuple[str, ...]
    point: str
    gradient: str
    note: str = ""
    examples: tuple[Example, ...] = ()


def _unary(op: str, x: Any, dx: Any, **attributes: Any) -> Example:
    return Example(op, ([x],), ([dx],), attributes)


CONVENTIONS = (
    Convention(
        ("Relu", "ThresholdedRelu", "Shrink"), "0, alpha, ±lambd", "0", "all frameworks agree",
        (
            _unary("Relu", 0.0, 0.0),
            _unary("ThresholdedRelu", 0.5, 0.0, alpha=0.5),
            Example("Shrink", ([-0.5, 0.5],), ([0.0, 0.0],), {"lambd": 0.5}),
        ),
    ),
    Convention(
        ("LeakyRelu", "PRelu"), "x = 0", "dx: the slope; dslope: 0", "JAX: 1",
        (
            _unary("LeakyRelu", 0.0, 0.25, alpha=0.25),
            Example("PRelu", ([0.0], [0.25]), ([0.25], [0.0])),
        ),
    ),
    Convention(
        ("Elu", "Selu", "Celu"), "x = 0", "the left value: alpha; scale · alpha; 1", "",
        (
            _unary("Elu", 0.0, 0.5, alpha=0.5),
            _unary("Selu", 0.0, 3.0, alpha=1.5, gamma=2.0),
            _unary("Celu", 0.0, 1.0, alpha=2.0),
        ),
    ),
    Convention(
        ("HardSigmoid", "HardSwish"), "the ends; -3 and 3", "0; 0 and 1", "",
        (
            Example("HardSigmoid", ([-2.0, 2.0],), ([0.0, 0.0],), {"alpha": 0.25}),
            Example("HardSwish", ([-3.0, 3.0],), ([0.0, 1.0],)),
        ),
    ),
    Convention(("Softsign",), "x = 0", "1", "", (_unary("Softsign", 0.0, 1.0),)),
    Convention(
        ("Clip",), "x on a bound", "dx: 1; dmin = dmax = 0",
        "JAX: 1/2. PyTorch's relu6 and hardtanh: 0",
        (
            Example("Clip", ([-1.0, 2.0], -1.0, 2.0), ([1.0, 1.0], 0.0, 0.0)),
            Example("Clip", ([0.0, 5.0], 3.0, 1.0), ([0.0, 0.0], 0.0, 2.0)),
        ),
    ),
    Convention(("Abs", "Sign"), "x = 0", "0", "JAX: 1 for Abs", (_unary("Abs", 0.0, 0.0),)),
    Convention(
        ("Max", "Min"), "k inputs tie", "1/k each", "the order of the inputs must not matter",
        (
            Example("Max", ([2.0], [2.0]), ([0.5], [0.5])),
            Example("Min", ([2.0], [3.0], [2.0]), ([0.5], [0.0], [0.5])),
        ),
    ),
    Convention(
        ("ReduceMax", "ReduceMin"), "k elements tie", "1/k each", "",
        (
            Example("ReduceMax", ([2.0, 1.0, 2.0],), ([0.5, 0.0, 0.5],)),
            Example("ReduceMin", ([1.0, 1.0, 2.0],), ([0.5, 0.5, 0.0],)),
        ),
    ),
    Convention(
        ("TopK", "ArgMax", "ArgMin"), "elements tie", "the lowest index", "by the specification",
        (Example("TopK", ([1.0, 3.0, 3.0], [1]), ([0.0, 1.0, 0.0], None)),),
    ),
    Convention(
        ("MaxPool",), "elements tie", "the first of the window", "through the saved Indices",
        (
            Example("MaxPool", ([[[1.0, 1.0, 0.0]]],), ([[[1.0, 1.0, 0.0]]],),
                    {"kernel_shape": [2]}),
        ),
    ),
    Convention(
        ("MaxPool",), "a NaN in the window", "to the NaN, the last of several",
        "as PyTorch; stock onnxruntime overlooks it",
        (
            Example("MaxPool", ([[[nan, 1.0, nan]]],), ([[[0.0, 0.0, 1.0]]],),
                    {"kernel_shape": [3]}),
        ),
    ),
    Convention(
        ("RoiAlign",), "mode max: weighted corners tie", "the first, by sample, then by corner", "",
        (
            Example("RoiAlign", ([[[[2.0, 2.0], [2.0, 2.0]]]], [[0.5, 0.5, 1.5, 1.5]], [0]),
                    ([[[[0.25, 0.0], [0.0, 0.0]]]], None),
                    {"mode": "max", "sampling_ratio": 1}),
        ),
    ),
    Convention(
        ("Sqrt", "Reciprocal", "Log", "Acos", "Atanh"), "the pole (0; 1 of Acos and Atanh)",
        "the infinity of the formula", "hiding it hides bugs",
        (
            _unary("Sqrt", 0.0, inf),
            _unary("Reciprocal", 0.0, -inf),
            _unary("Log", 0.0, inf),
            _unary("Acos", 1.0, -inf),
            _unary("Atanh", 1.0, inf),
        ),
    ),
    Convention(("Log",), "x < 0, where y is NaN", "1 / x", "", (_unary("Log", -2.0, -0.5),)),
    Convention(
        ("ReduceL2", "LpNormalization", "ReduceL1"), "the zero vector", "0", "JAX, TensorFlow: NaN",
        (
            Example("ReduceL2", ([0.0, 0.0],), ([0.0, 0.0],)),
            Example("ReduceL1", ([0.0, 0.0],), ([0.0, 0.0],)),
            Example("LpNormalization", ([[0.0, 0.0]],), ([[0.0, 0.0]],)),
        ),
    ),
    Convention(
        ("Pow",), "(0, 0); (0, 1/2); (0, -1)", "0, 0; inf; -inf, -inf", "",
        (
            Example("Pow", ([0.0], [0.0]), ([0.0], [0.0])),
            Example("Pow", ([0.0], [0.5]), ([inf], None)),
            Example("Pow", ([-0.0], [0.5]), ([inf], None)),
            Example("Pow", ([0.0], [-1.0]), ([-inf], [-inf])),
        ),
    ),
    Convention(
        ("Pow",), "x < 0", "by the exponent: NaN",
        "only if asked for: that of a constant exponent is not computed",
        (Example("Pow", ([-2.0], [2.0]), ([-4.0], [nan])),),
    ),
    Convention(
        ("Div",), "a / 0, 0 / 0", "the formula", "",
        (
            Example("Div", ([1.0], [0.0]), ([inf], [-inf])),
            Example("Div", ([0.0], [0.0]), ([inf], [nan])),
        ),
    ),
    Convention(
        ("Where",), "the branch not taken is not finite", "NaN", "as in Where(x > 0, Log(x), 0)",
    ),
    Convention(
        ("ReduceProd", "CumProd"), "zeros among the factors", "exact: exclusive products",
        "never y / x; TensorFlow's CumProd is wrong here",
        (
            Example("ReduceProd", ([0.0, 2.0, 3.0],), ([6.0, 0.0, 0.0],)),
            Example("ReduceProd", ([0.0, 0.0, 3.0],), ([0.0, 0.0, 0.0],)),
        ),
    ),
    Convention(
        ("Softmax", "LogSoftmax", "Sigmoid", "Softplus"), "large numbers, masks of -inf",
        "exact and finite", "a row of -inf only: NaN",
        (
            Example("Softmax", ([[1000.0, 0.0, -inf]],), ([[0.0, 0.0, 0.0]],),
                    dy=[[1.0, 2.0, 3.0]]),
            Example("LogSoftmax", ([[1000.0, 0.0]],), ([[-2.0, 2.0]],), dy=[[1.0, 2.0]]),
            _unary("Sigmoid", -1000.0, 0.0),
            _unary("Softplus", 1000.0, 1.0),
        ),
    ),
    Convention(
        ("Floor", "Ceil", "Round", "ArgMax", "ArgMin"), "everywhere",
        "0, listed as zero by definition", "a silently missing gradient is worse",
        (_unary("Floor", 0.5, 0.0), _unary("Ceil", 0.5, 0.0), _unary("Round", 0.3, 0.0)),
    ),
    Convention(("Cast",), "to integers", "0, listed as zero by definition"),
    Convention(
        ("Mod",), "everywhere", "1, -floor(a / b); fmod = 1: 1, -trunc(a / b)", "",
        (Example("Mod", ([-7.5], [2.0]), ([1.0], [3.0]), {"fmod": 1}),),
    ),
    Convention(
        ("Relu", "Max", "Min", "ReduceMax", "ReduceMin"), "x is NaN",
        "dy passes, to the NaN; ReduceMax: NaN", "a NaN stays visible",
        (
            _unary("Relu", nan, 1.0),
            Example("Max", ([nan], [1.0]), ([1.0], [0.0])),
        ),
    ),
    Convention(
        ("Gather", "GatherElements", "GatherND"), "an index occurs twice",
        "added, in a fixed order", "",
        (
            Example("Gather", ([5.0, 6.0], [0, 0]), ([2.0, 0.0], None)),
            Example("GatherElements", ([5.0, 6.0], [1, 1]), ([0.0, 2.0], None)),
        ),
    ),
    Convention(
        ("ScatterElements", "ScatterND"), "max or min: updates and data tie; mul",
        "1/(k + 1) each; exclusive products", "none: duplicates are undefined by the specification",
        (
            Example("ScatterElements", ([4.0], [0, 0], [4.0, 4.0]), ([1 / 3], None, [1 / 3, 1 / 3]),
                    {"reduction": "max"}),
            Example("ScatterElements", ([2.0], [0, 0], [0.0, 3.0]), ([0.0], None, [6.0, 0.0]),
                    {"reduction": "mul"}),
        ),
    ),
    Convention(
        ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"), "every label is ignored", "0",
        "the loss itself stays NaN",
        (
            Example("SoftmaxCrossEntropyLoss", ([[1.0, 2.0]], [7]), ([[0.0, 0.0]], None),
                    {"ignore_index": 7}),
            Example("NegativeLogLikelihoodLoss", ([[1.0, 2.0]], [7]), ([[0.0, 0.0]], None),
                    {"ignore_index": 7}),
        ),
    ),
    Convention(
        ("Dropout",), "ratio 1; the mask", "0; that of this forward pass, saved",
        "never drawn again",
    ),
    Convention(
        ("QuantizeLinear", "DequantizeLinear", "Cast"), "rounding to 8 bits or fewer",
        "of what is computed: straight through where it does not saturate; of a parameter: with "
        "--ste only",
        "never silently",
    ),
    Convention(
        ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli",
         "Multinomial"),
        "everywhere", "none", "their outputs are kept, not drawn again",
    ),
)  # fmt: skip


def points(op: str) -> list[Convention]:
    """The conventions that concern an operator."""
    return [c for c in CONVENTIONS if op in c.operators]

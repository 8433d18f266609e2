"""Elementwise operators as programs of the library's steps.

A formula is lines `to = step a b` over inputs `x0`, `x1`, …, temporaries, and numbers, which are
inputs of their own; the last line gives `y`, and no other does: so y may be any of the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gradtool.native.elementwise import Step

SELU_ALPHA = 1.67326319217681884765625
SELU_GAMMA = 1.05070102214813232421875
SLOPE_OF_ERF = 2 / math.sqrt(math.pi)


@dataclass(frozen=True)
class Formula:
    """Steps, and the numbers that are inputs after those of the operator."""

    code: tuple[Step, ...]
    numbers: tuple[float, ...]


def formula(inputs: int, *lines: str) -> Formula:
    """A formula of so many inputs."""
    said = [line.split() for line in lines]
    words = {word for _, _, _, *operands in said for word in operands}
    numbers = sorted(float(word) for word in words if _is_number(word))
    temporaries = sorted({to for to, *_ in said} - {"y"})
    names = [f"x{i}" for i in range(inputs)]
    registers = {name: i for i, name in enumerate(names)}
    registers |= {repr(number): inputs + i for i, number in enumerate(numbers)}
    registers |= {name: inputs + len(numbers) + i for i, name in enumerate(["y", *temporaries])}

    def register(word: str) -> int:
        return registers[repr(float(word)) if _is_number(word) else word]

    code = [(step, register(to), *map(register, operands)) for to, _, step, *operands in said]
    return Formula(tuple(code), tuple(numbers))  # type: ignore[arg-type]


def _is_number(word: str) -> bool:
    return word[0] in "-.0123456789"


def _select(mask: str, yes: str, no: str) -> tuple[str, ...]:
    """`y` is one where a mask is true, else the other."""
    return f"u = both {mask} {yes}", f"v = but {mask} {no}", "y = either u v"


def _exponential(alpha: float, beta: float, gamma: float) -> Formula:
    """`γ max(x, 0) + α (exp(β min(x, 0)) - 1)`."""
    return formula(
        1, "t = min x0 0", f"t = mul t {beta}", "t = fall t", f"t = mul t {alpha}", "s = max x0 0",
        f"s = mul s {gamma}", "y = add s t",
    )  # fmt: skip


def _elu_slope(alpha: float, beta: float, gamma: float) -> Formula:
    """`γ dy` where y is positive, else `β (y + α) dy`; inputs y, dy."""
    return formula(
        2, "m = greater x0 0", f"t = add x0 {alpha}", f"t = mul t {beta}", f"u = both m {gamma}",
        "v = but m t", "t = either u v", "y = mul t x1",
    )  # fmt: skip


def _chain(step: str) -> Callable[[int], Formula]:
    def of(inputs: int) -> Formula:
        if inputs == 1:
            return formula(1, "y = max x0 x0")
        lines = [f"{'y' if i == inputs - 1 else 't'} = {step} {'t' if i > 1 else 'x0'} x{i}"
                 for i in range(1, inputs)]  # fmt: skip
        return formula(inputs, *lines)

    return of


def _clip(*, low: bool, high: bool) -> Formula:
    """Of x, and of the bounds that are there."""
    if low and high:
        return formula(3, "t = max x0 x1", "y = min t x2")
    if low or high:
        return formula(2, f"y = {'max' if low else 'min'} x0 x1")
    return formula(1, "y = max x0 x0")


# By operator: the formula of its attributes.  Inputs are those of the operator, all given.
SIMPLE: Mapping[str, Callable[..., Formula]] = {
    **{op: lambda step=step: formula(1, f"y = {step} x0") for op, step in {
        "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Neg": "neg", "Abs": "abs",
        "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Erf": "erf", "HardSwish": "hard_swish",
        "Reciprocal": "inverse", "Sign": "sign", "Softplus": "softplus",
    }.items()},
    **{op: lambda step=step: formula(2, f"y = {step} x0 x1") for op, step in {
        "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Pow": "pow",
        "Greater": "greater", "Equal": "equal", "ai.gradtool::ReluGrad": "relu_grad",
        "ai.gradtool::SigmoidGrad": "sigmoid_grad", "ai.gradtool::TanhGrad": "tanh_grad",
        "ai.gradtool::HardSwishGrad": "hard_swish_grad", "ai.gradtool::MaskGrad": "both",
    }.items()},
    "Less": lambda: formula(2, "y = greater x1 x0"),
    "Gelu": lambda approximate="none": formula(1, f"y = {_gelu(approximate)} x0"),
    "ai.gradtool::GeluGrad": lambda approximate="none": formula(
        2, f"y = {_gelu(approximate)}_grad x0 x1"),
    "LeakyRelu": lambda alpha=0.01: formula(
        1, "t = min x0 0", f"t = mul t {alpha}", "s = max x0 0", "y = add s t"),
    "ai.gradtool::LeakyReluGrad": lambda alpha: formula(
        2, "m = greater x0 0", f"t = mul x1 {alpha}", *_select("m", "x1", "t")),
    "PRelu": lambda: formula(2, "t = min x0 0", "t = mul t x1", "s = max x0 0", "y = add s t"),
    "ai.gradtool::PReluGrad": lambda: formula(
        3, "m = greater x0 0", "t = mul x1 x2", *_select("m", "x2", "t")),
    "Elu": lambda alpha=1.0: _exponential(alpha, 1.0, 1.0),
    "Selu": lambda alpha=SELU_ALPHA, gamma=SELU_GAMMA: _exponential(alpha * gamma, 1.0, gamma),
    "Celu": lambda alpha=1.0: _exponential(alpha, 1 / alpha, 1.0),
    "ai.gradtool::EluGrad": _elu_slope,
    "HardSigmoid": lambda alpha=0.2, beta=0.5: formula(
        1, f"t = mul x0 {alpha}", f"t = add t {beta}", "t = max t 0", "y = min t 1"),
    "ai.gradtool::HardSigmoidGrad": lambda alpha: formula(
        2, "m = greater x0 0", "n = greater 1 x0", "m = both m n", f"t = mul x1 {alpha}",
        "y = both m t"),
    "Swish": lambda alpha=1.0: formula(
        1, f"t = mul x0 {alpha}", "t = sigmoid t", "y = mul x0 t"),
    "ai.gradtool::SwishGrad": lambda alpha: formula(
        2, f"s = mul x0 {alpha}", "t = sigmoid s", "u = sub 1 t", "u = mul u s", "u = add u 1",
        "u = mul u t", "y = mul u x1"),
    "ai.gradtool::SoftplusGrad": lambda: formula(2, "t = sigmoid x0", "y = mul t x1"),
    "Mish": lambda: formula(1, "t = softplus x0", "t = tanh t", "y = mul t x0"),
    "ai.gradtool::MishGrad": lambda: formula(
        2, "t = softplus x0", "t = tanh t", "s = sigmoid x0", "s = mul s x0", "u = mul t t",
        "u = sub 1 u", "s = mul s u", "t = add t s", "y = mul t x1"),
    "ai.gradtool::SqrtGrad": lambda: formula(2, "t = add x0 x0", "y = div x1 t"),
    "ai.gradtool::ReciprocalGrad": lambda: formula(
        2, "t = mul x0 x0", "t = mul x1 t", "y = neg t"),
    "ai.gradtool::AbsGrad": lambda: formula(2, "t = sign x0", "y = mul t x1"),
    "ai.gradtool::ErfGrad": lambda: formula(
        2, "t = mul x0 x0", "t = neg t", "t = exp t", f"t = mul t {SLOPE_OF_ERF}", "y = mul t x1"),
    "ai.gradtool::PowGrad": lambda: formula(
        3, "m = equal x1 0", "t = sub x1 1", "t = but m t", "t = pow x0 t", "t = mul t x1",
        "y = mul t x2"),
    "Where": lambda: formula(3, *_select("x0", "x1", "x2")),
}  # fmt: skip
# The same of those whose inputs differ in number.
VARIED: Mapping[str, Callable[[int], Formula]] = {
    "Sum": _chain("add"), "Max": _chain("max"), "Min": _chain("min"),
}  # fmt: skip


TO_BOOL, FROM_BOOL = formula(1, "t = equal x0 0", "y = not t"), formula(1, "y = both x0 1")


def _gelu(approximate: str) -> str:
    return "gelu_tanh" if approximate == "tanh" else "gelu"


def clip(low: object, high: object) -> Formula:
    """`Clip` with the bounds that are not None."""
    return _clip(low=low is not None, high=high is not None)

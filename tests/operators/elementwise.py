"""Cases of the elementwise family."""

from __future__ import annotations

import numpy as np
from cases import case, fixed, floats, integers, positive

for name in ("Add", "Sub", "Mul"):
    case(name, (3, 4), (3, 4))
    case(name, (2, 3, 4), (4,))
    case(name, (3, 1), (2, 1, 4))
    case(name, (), (2, 3))
    case(name, (), ())
case("Div", (3, 4), floats(3, 4, gap=0.5))
case("Div", (2, 3), floats(gap=0.5))
case("Div", (), floats(2, 3, gap=0.5))
for name in ("Neg", "Abs", "Exp", "Sin", "Cos", "Atan", "Sinh", "Cosh", "Asinh", "Erf"):
    ort64 = name not in ("Atan", "Sinh", "Cosh", "Asinh")
    case(name, (3, 4))
    case(name, ())
for name in ("Sqrt", "Log"):
    case(name, positive(3, 4))
    case(name, positive())
case("Reciprocal", floats(3, 4, gap=0.5))
case("Tan", floats(3, 4, low=-1, high=1))
for name in ("Asin", "Acos", "Atanh"):
    case(name, floats(3, 4, low=-0.8, high=0.8))
case("Acosh", positive(3, 4, low=1.3, high=3))

for exponent in (-1.0, 0.0, 0.5, 1.0, 2.0, 2.5, 3.0):
    case("Pow", positive(3, 4), np.float64(exponent), note=f"{exponent}", ort=False)
    case("Pow", positive(3, 4), np.float32(exponent), note=f"{exponent}f")
case("Pow", floats(3, 4), np.int64(3))
case("Pow", floats(3, 4), np.arange(4))
case("Pow", positive(3, 4), (3, 4))
case("Pow", positive(3, 1), (4,))
case("Pow", positive(4), ())

for mode in (0, 1):
    case(
        "Mod", floats(3, 4, distinct=True), positive(4, low=0.7, high=0.8), fmod=mode, ort=mode == 1
    )
for name in ("Sum", "Mean", "Max", "Min"):
    case(
        name,
        floats(2, 3, distinct=True),
        floats(3, distinct=True, high=2.1),
        floats(1, 3, distinct=True, high=1.7),
    )
    case(name, floats(2, 3, distinct=True), floats(3, distinct=True, high=2.1))
    case(name, floats(2, 3, distinct=True), np.float32(0.01), note="const", gradient=False)
    case(name, (2, 3))
    case(name, (), floats(low=3, high=4))

case("Clip", floats(5, 6, distinct=True), floats(low=-1, high=-0.9), floats(low=0.9, high=1))
case("Clip", floats(5, 6, distinct=True), floats(low=-1, high=-0.9), None)
case("Clip", floats(5, 6, distinct=True), None, floats(low=0.9, high=1))
case(
    "Clip",
    floats(5, 6, distinct=True),
    floats(low=0.9, high=1),
    floats(low=-1, high=-0.9),
    note="crossed",
)
case("Clip", (2, 3))
case("Where", np.array([[True, False, True]]), (2, 3), (2, 3))
case("Where", np.array([[True], [False]]), (3,), ())
case("Identity", (2, 3))
case("Cast", (2, 3), to=1, note="to-float", gradient=False)
case("Cast", (2, 3), to=7, gradient=False)
case("Cast", integers([[0, 1], [2, 0]]), to=9, gradient=False)
case("Cast", integers([[0, 1], [2, 0]]), to=1, gradient=False)
case("CastLike", (2, 3), np.zeros(1, np.float16), gradient=False)
case("CastLike", (2, 3), fixed(1))

for name in ("Floor", "Ceil", "Round", "Sign", "IsNaN", "IsInf"):
    case(name, (3, 4), gradient=False)
case("Round", np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32), gradient=False)
special = np.array([1, np.inf, -np.inf, np.nan], np.float32)
for name in ("IsNaN", "IsInf"):
    case(name, special, gradient=False)
case("IsInf", special, gradient=False, detect_negative=0)
case("IsInf", special, gradient=False, detect_positive=0)

whole = integers(-7, 7, -7, 7, 6, 0), integers(2, -2, -2, 2, 3, 5)
for name in (
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Mod",
    "Min",
    "Max",
    "Equal",
    "Less",
    "Greater",
    "LessOrEqual",
    "GreaterOrEqual",
):
    case(name, *whole, gradient=False)
    if name not in ("Mod", "Div"):
        case(name, fixed(2, 3), fixed(3), gradient=False)
case("Mod", *whole, gradient=False, fmod=1)
case("Pow", whole[1], integers(3), gradient=False)
for name in ("Neg", "Abs", "Sign"):
    case(name, whole[0], gradient=False)
truth = np.array([True, True, False, False]), np.array([True, False, True, False])
for name in ("And", "Or", "Xor", "Equal"):
    case(name, *truth, gradient=False)
case("Not", truth[0], gradient=False)
for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
    case(name, *whole, gradient=False)
case("BitwiseNot", whole[0], gradient=False)
bits = np.array([1, 16, 3], np.uint8), np.array([1, 2, 0], np.uint8)
for direction in ("LEFT", "RIGHT"):
    case("BitShift", *bits, gradient=False, direction=direction)

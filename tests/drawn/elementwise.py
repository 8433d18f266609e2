"""Elementwise operators and activations."""

from __future__ import annotations

from typing import Any

import numpy as np
from drawn.case import DTYPES, Case, Draw, draws

DOMAINS: dict[str, tuple[float, float, float]] = {
    "Sqrt": (0.3, 2.0, 0.0), "Log": (0.3, 2.0, 0.0), "Reciprocal": (-2.0, 2.0, 0.5),
    "Asin": (-0.8, 0.8, 0.0), "Acos": (-0.8, 0.8, 0.0), "Atanh": (-0.8, 0.8, 0.0),
    "Acosh": (1.3, 3.0, 0.0), "Tan": (-1.0, 1.0, 0.0), "HardSwish": (-2.8, 2.8, 0.0),
}  # fmt: skip
UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Erf", "Exp",
    "HardSwish", "Identity", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Sigmoid", "Sin", "Sinh",
    "Softplus", "Softsign", "Sqrt", "Tan", "Tanh",
)  # fmt: skip
ATTRIBUTES: dict[str, dict[str, tuple[Any, ...]]] = {
    "LeakyRelu": {"alpha": (-0.5, 0.0, 0.3, 2.0)},
    "Elu": {"alpha": (0.5, 1.5)},
    "Selu": {"alpha": (0.5, 2.0), "gamma": (0.7, 1.5)},
    "Celu": {"alpha": (0.5, 3.0)},
    "ThresholdedRelu": {"alpha": (1.0, 0.0, 0.01)},
    "HardSigmoid": {"alpha": (0.1, 0.3), "beta": (0.4, 0.5)},
    "Gelu": {"approximate": ("none", "tanh")},
    "Shrink": {"lambd": (0.02, 0.03), "bias": (0.0, 0.3, -0.2)},
    "Swish": {"alpha": (1.0, 1.702, -0.5)},
}


@draws(*UNARY)
def unary(d: Draw) -> Case:
    low, high, gap = DOMAINS.get(d.op, (-2.0, 2.0, 0.06))
    return d.case(d.x(d.shape(), low, high, gap))


@draws(*ATTRIBUTES)
def with_attributes(d: Draw) -> Case:
    given = d.maybe(**{k: d.one(*v) for k, v in ATTRIBUTES[d.op].items()})
    if d.op == "ThresholdedRelu":
        given.setdefault("alpha", 0.0)
    if d.op == "Shrink":
        given.setdefault("lambd", 0.03)
    x = d.x(d.shape(), -1.5, 1.5, 0.1)
    opset = {"Gelu": 20, "Swish": 24}.get(d.op, (18, 20, 22))
    dtypes = ("float32",) if d.op == "Celu" else DTYPES
    return d.case(x, opset=opset, dtypes=dtypes, **given)


@draws("PRelu")
def prelu(d: Draw) -> Case:
    shape = d.shape()
    return d.case(d.x(shape), d.w(d.broadcast(shape)))


@draws("Softmax", "LogSoftmax")
def softmax(d: Draw) -> Case:
    shape = d.shape(low=1)
    return d.case(d.x(shape), **d.maybe(axis=d.axis(len(shape))))


@draws("Dropout")
def dropout(d: Draw) -> Case:
    """In training only at ratio 0: masks are drawn by each runtime for itself."""
    x, outputs = d.x(d.shape()), d.int(1, 2)
    form = d.int(0, 3)
    if form == 0:
        return d.case(x, outputs=outputs)
    if form == 1:
        return d.case(x, d.fixed(np.float32(0.25), exact=True), outputs=outputs)
    training = d.constant(np.array(form == 3))
    ratio = d.constant(np.float32(0.0 if form == 3 else 0.3), exact=True)
    return d.case(x, ratio, training, outputs=outputs)


@draws("Add", "Sub", "Mul")
def arithmetic(d: Draw) -> Case:
    a, b = _pair(d)
    return d.case(d.x(a), d.x(b))


def _pair(d: Draw) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast, perhaps each along an axis of its own."""
    whole = d.shape()
    a, b = d.broadcast(whole), d.broadcast(whole)
    form = d.int(0, 3)
    if form == 0:
        return whole, whole
    if form == 1:
        return whole, b
    return (b, whole) if form == 2 else (a, b)


@draws("Div")
def div(d: Draw) -> Case:
    a, b = _pair(d)
    return d.case(d.x(a), d.x(b, gap=0.5))


@draws("Pow")
def power(d: Draw) -> Case:
    a, b = _pair(d)
    if d.flag(0.3):
        exponent = d.one(np.int64(2), np.int64(3), np.int32(2), np.int32(0), np.int32(-1))
        return d.case(d.x(a, gap=0.4), d.constant(exponent), dtypes=("float32", "float64"))
    if d.flag(0.3):
        exponent = d.one(2.0, 3.0, 0.0, 1.0, -1.0)
        return d.case(d.x(a, gap=0.4), d.constant(np.float64(exponent)))
    if d.flag(0.2):
        return d.case(d.x(a, 0.3, 2.0, 0.0), d.constant(np.float64(d.one(0.5, -0.5, 1.5))))
    return d.case(d.x(a, 0.3, 2.0, 0.0), d.x(b))


@draws("Mod")
def mod(d: Draw) -> Case:
    """Quotients are far from integers: dividends lie in the middle of a period."""
    a, b = _pair(d)
    shape = np.broadcast_shapes(a, b)
    y = d.numbers(b, 0.9, 1.1)
    x = (np.broadcast_to(y, shape) * d.rng.choice([-1.5, -0.5, 0.5, 1.5], shape)).copy()
    given = d.x(shape)
    made = type(given)(x, moved=True)
    return d.case(made, type(given)(y, moved=True), fmod=1)


@draws("Max", "Min", "Sum", "Mean")
def several(d: Draw) -> Case:
    whole = d.shape()
    count = d.int(1, 4)
    shapes = [d.broadcast(whole) for _ in range(count)]
    if d.op in ("Sum", "Mean"):
        return d.case(*(d.x(s) for s in shapes))
    # the grids are shifted, so that no two numbers meet
    arrays = [d.rng.integers(-20, 20, s) / 10 + 0.02 * i for i, s in enumerate(shapes)]
    given = d.x(())
    return d.case(*(type(given)(np.asarray(a), moved=True) for a in arrays), steps=(1e-3, 1e-4))


@draws("Clip")
def clip(d: Draw) -> Case:
    x = d.rng.integers(-20, 20, d.shape()) / 10 + 0.03
    low = d.x((), -1.41, -1.4) if d.flag(0.7) else None
    high = d.x((), 0.89, 0.9) if d.flag(0.7) else None
    return d.case(type(d.x(()))(x, moved=True), low, high)


@draws("Where")
def where(d: Draw) -> Case:
    a, b = _pair(d)
    shape = np.broadcast_shapes(a, b)
    condition = d.rng.random(d.broadcast(shape)) > 0.5
    return d.case(d.fixed(condition), d.x(a), d.x(b))


@draws("Cast")
def cast(d: Draw) -> Case:
    to = d.one(1, 11, 10)
    bound = {10: 3e4, 1: 300.0}.get(to, 1.0)
    return d.case(d.x(d.shape()), to=to, rough=bound, steps=(0.25,) if to != 11 else (1e-3,))


@draws("CastLike")
def cast_like(d: Draw) -> Case:
    like = d.fixed(np.zeros(d.shape(0, 2), d.one(np.float32, np.float64)), exact=True)
    return d.case(d.x(d.shape()), like, rough=300.0, steps=(0.25,))

"""Arithmetic, comparison and logic, element by element, with numpy's broadcasting."""

from __future__ import annotations

import numpy as np

from gradtool.exec.kernel import kernel
from gradtool.exec.kernels import _casts, _elementwise_grad  # noqa: F401 - register theirs
from gradtool.exec.kernels._blocks import aligned, block_size
from gradtool.exec.kernels._powers import raise_to
from gradtool.exec.kernels._select import INTEGERS, choose
from gradtool.program import Spec

UNARY = {
    "Neg": "negative",
    "Abs": "absolute",
    "Exp": "exp",
    "Log": "log",
    "Sqrt": "sqrt",
    "Sin": "sin",
    "Cos": "cos",
    "Tan": "tan",
    "Asin": "arcsin",
    "Acos": "arccos",
    "Atan": "arctan",
    "Sinh": "sinh",
    "Cosh": "cosh",
    "Asinh": "arcsinh",
    "Acosh": "arccosh",
    "Atanh": "arctanh",
    "Tanh": "tanh",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "rint",
    "Not": "logical_not",
    "BitwiseNot": "invert",
    "Sign": "sign",
    "IsNaN": "isnan",
}
BINARY = {
    "Add": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
}


def _unary(name, ufunc):
    @kernel(name, may_inplace=(0,), strided=True)
    def run(xp, x, *, out, work):
        getattr(xp, ufunc)(x, out=out[0])


def _binary(name, ufunc):
    @kernel(name, may_inplace=(0, 1), strided=True)
    def run(xp, a, b, *, out, work):
        getattr(xp, ufunc)(a, b, out=out[0])


for _name, _ufunc in UNARY.items():
    _unary(_name, _ufunc)
for _name, _ufunc in BINARY.items():
    _binary(_name, _ufunc)


def _is_float(array):
    return array.dtype.kind not in "iub"


def _div_work(a, b, *, out):
    return [] if _is_float(out[0]) else [out[0]]


@kernel("Div", may_inplace=(0, 1), strided=True, work=_div_work)
def div(xp, a, b, *, out, work):
    """`a / b`; integers truncate toward zero: `(a - fmod(a, b)) / b`, as in C."""
    if _is_float(out[0]):
        xp.divide(a, b, out=out[0])
    else:
        xp.fmod(a, b, out=work[0])
        xp.subtract(a, work[0], out=work[0])
        xp.floor_divide(work[0], b, out=out[0])


@kernel("Mod", may_inplace=(0, 1), strided=True)
def mod(xp, a, b, *, out, work, fmod=0):
    """The remainder of `a / b`, of the sign of b, or of a with `fmod`."""
    (xp.fmod if fmod else xp.remainder)(a, b, out=out[0])


@kernel("Reciprocal", may_inplace=(0,), strided=True)
def reciprocal(xp, x, *, out, work):
    xp.divide(x.dtype.type(1), x, out=out[0])


@kernel("Pow", may_inplace=(0,), strided=True)
def power(xp, x, exponent, *, out, work):
    """`x ** exponent` in the type of x, which may differ from the exponent's."""
    raise_to(xp, x, exponent, out[0])


@kernel("IsInf", strided=True)
def is_inf(xp, x, *, out, work, detect_negative=1, detect_positive=1):
    if detect_negative and detect_positive:
        xp.isinf(x, out=out[0])
    elif detect_negative or detect_positive:
        xp.equal(x, x.dtype.type(-np.inf if detect_negative else np.inf), out=out[0])
    else:
        out[0].fill(False)


@kernel("BitShift", may_inplace=(0, 1), strided=True)
def bit_shift(xp, x, y, *, out, work, direction):
    (xp.left_shift if direction == "LEFT" else xp.right_shift)(x, y, out=out[0])


def _fold(xp, ufunc, inputs, y):
    """`y` is the inputs combined from the left; only the first one may be y itself."""
    first, *rest = inputs
    if not rest:
        xp.copyto(y, first)
        return
    ufunc(first, rest[0], out=y)
    for value in rest[1:]:
        ufunc(y, value, out=y)


def _nary(name, ufunc):
    @kernel(name, may_inplace=(0, 1), strided=True)
    def run(xp, *inputs, out, work):
        _fold(xp, getattr(xp, ufunc), inputs, out[0])


for _name, _ufunc in {"Sum": "add", "Max": "maximum", "Min": "minimum"}.items():
    _nary(_name, _ufunc)


@kernel("Mean", may_inplace=(0, 1), strided=True)
def mean(xp, *inputs, out, work):
    """`(x₁ + … + xₙ) / n`."""
    _fold(xp, xp.add, inputs, out[0])
    xp.divide(out[0], out[0].dtype.type(len(inputs)), out=out[0])


@kernel("Clip", may_inplace=(0,), strided=True)
def clip(xp, x, low=None, high=None, *, out, work):
    """`min(max(x, low), high)`."""
    if low is not None:
        x = xp.maximum(x, low, out=out[0])
    if high is not None:
        xp.minimum(x, high, out=out[0])
    elif low is None:
        xp.copyto(out[0], x)


def _where_work(condition, a, b, *, out):
    size = block_size(out[0].shape, (condition, a, b))
    flat = Spec((size,), out[0].dtype)
    return [flat, flat, Spec((size,), np.dtype(bool))]


@kernel("Where", may_inplace=(1, 2), strided=True, work=_where_work)
def where(xp, condition, a, b, *, out, work):
    y = out[0]
    for part, (mask, left, right) in aligned(xp, y, (condition, a, b)):
        t, s, own = (w[w.size - part.size :].reshape(part.shape) for w in work)
        xp.copyto(own, mask)
        if y.dtype.itemsize in INTEGERS and y.dtype.kind != "O":
            choose(xp, own, left, right, part, t, s)
        else:
            xp.copyto(t, right)
            xp.copyto(t, left, where=own)
            xp.copyto(part, t)


def _whole(x, strides, *, out):
    return [(0, strides)]


@kernel("Identity", strided=True, view=_whole, dynamic=lambda _, x: x)
def identity(xp, x, *, out, work):
    xp.copyto(out[0], x)

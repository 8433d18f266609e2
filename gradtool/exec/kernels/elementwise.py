"""Arithmetic, comparison and logic, element by element, with numpy's broadcasting."""

from __future__ import annotations


from gradtool.exec.kernel import kernel


UNARY = {
    "Neg": "negative",
    "Abs": "absolute",
    "Exp": "exp",
    "Log": "log",
    "Sqrt": "sqrt",
    "Sin": "sin",
    "Cos": "cos",
    "Floor": "floor",
    "Ceil": "ceil",
    "Not": "logical_not",
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

    return run


def _binary(name, ufunc):
    @kernel(name, may_inplace=(0, 1), strided=True)
    def run(xp, a, b, *, out, work):
        getattr(xp, ufunc)(a, b, out=out[0])

    return run


for _name, _ufunc in UNARY.items():
    _unary(_name, _ufunc)
for _name, _ufunc in BINARY.items():
    _binary(_name, _ufunc)


@kernel("Div", may_inplace=(0, 1), strided=True)
def div(xp, a, b, *, out, work):
    """`a / b`; integers truncate toward zero, as in C."""
    if out[0].dtype.kind == "f" or out[0].dtype.name == "bfloat16":
        xp.divide(a, b, out=out[0])
    elif out[0].dtype.kind == "u":
        xp.floor_divide(a, b, out=out[0])
    else:
        quotient = xp.abs(a) // xp.abs(b)
        xp.copyto(out[0], xp.where((a < 0) ^ (b < 0), -quotient, quotient), casting="unsafe")


@kernel("Reciprocal", may_inplace=(0,), strided=True)
def reciprocal(xp, x, *, out, work):
    xp.divide(1, x, out=out[0])


@kernel("Pow", may_inplace=(0,), strided=True)
def power(xp, x, y, *, out, work):
    """`x ** y` in the type of x, which may differ from y's."""
    xp.power(x, y, out=out[0], casting="unsafe")





def _fold(name, ufunc):
    @kernel(name, strided=True)
    def run(xp, *inputs, out, work):
        first, *rest = inputs
        if not rest:
            xp.copyto(out[0], first)
            return
        combine = getattr(xp, ufunc)
        combine(first, rest[0], out=out[0])
        for value in rest[1:]:
            combine(out[0], value, out=out[0])

    return run


for _name, _ufunc in {"Sum": "add", "Max": "maximum", "Min": "minimum"}.items():
    _fold(_name, _ufunc)


@kernel("Where", strided=True)
def where(xp, condition, a, b, *, out, work):
    xp.copyto(out[0], b)
    xp.copyto(out[0], a, where=condition)


@kernel("Cast", strided=True)
def cast(xp, x, *, out, work, to, saturate=1, round_mode="up"):
    xp.copyto(out[0], x, casting="unsafe")


@kernel("Identity", strided=True, view=lambda x, strides, *, out: [(0, strides)])
def identity(xp, x, *, out, work):
    xp.copyto(out[0], x)


@kernel("ai.gradtool::AbsGrad", may_inplace=(0, 1), strided=True, work=lambda x, dy, *, out: [x])
def abs_grad(xp, x, dy, *, out, work):
    xp.multiply(xp.sign(x, out=work[0]), dy, out=out[0])



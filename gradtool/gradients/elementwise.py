"""Gradients of arithmetic, comparison and logic, element by element."""

from __future__ import annotations

from gradtool.gradients import gradient, zero_gradient

zero_gradient(
    "And", "Or", "Xor", "Not", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual",
    "IsNaN", "IsInf", "Sign", "Floor", "Ceil", "Round",
)  # fmt: skip


@gradient("Add", broadcasts=True)
def add(op, node, dy):
    """`y = a + b`:  da = dy,  db = dy."""
    return dy, dy


@gradient("Sub", broadcasts=True)
def sub(op, node, dy):
    """`y = a - b`:  da = dy,  db = -dy."""
    return dy, -dy


@gradient("Mul", broadcasts=True)
def mul(op, node, dy):
    """`y = a · b`:  da = dy · b,  db = dy · a."""
    a, b = node.inputs
    return dy * b, dy * a


@gradient("Div", broadcasts=True)
def div(op, node, dy):
    """`y = a / b`:  da = dy / b,  db = -dy · a / b²."""
    a, b = node.inputs
    da = dy / b
    return da, -(da * (a / b))


@gradient("Neg")
def neg(op, node, dy):
    """`y = -x`:  dx = -dy."""
    return -dy


@gradient("Abs")
def absolute(op, node, dy):
    """`y = |x|`:  dx = dy · sign(x)."""
    return op.AbsGrad(node.inputs[0], dy)


@gradient("Exp")
def exp(op, node, dy):
    """`y = exp x`:  dx = dy · y."""
    return dy * node.outputs[0]


@gradient("Sum", broadcasts=True)
def total(op, node, dy):
    """`y = x₁ + … + xₙ`:  dxᵢ = dy."""
    return (dy,) * len(node.inputs)


@gradient("Identity")
def identity(op, node, dy):
    """`y = x`:  dx = dy."""
    return dy

"""Gradients of functions of one operand, element by element."""

from __future__ import annotations

import math
from typing import Any

from gradtool.ops.formulas import elementwise, slope


@slope("Abs", of="x")
def abs_grad(op: Any, x: Any, dy: Any) -> Any:
    """`dx = dy · sign(x)`, 0 at 0."""
    return dy * op.Sign(x)


@slope("Sqrt", of="y")
def sqrt_grad(op: Any, y: Any, dy: Any) -> Any:
    """`dx = dy / 2y`."""
    return dy / (y + y)


@slope("Reciprocal", of="y")
def reciprocal_grad(op: Any, y: Any, dy: Any) -> Any:
    """`dx = -dy · y²`."""
    return -(dy * (y * y))


@slope("Sin", of="x", apart=("native",))
def sin_grad(op: Any, x: Any, dy: Any) -> Any:
    """`dx = dy · cos x`."""
    return dy * op.Cos(x)


@slope("Cos", of="x", apart=("native",))
def cos_grad(op: Any, x: Any, dy: Any) -> Any:
    """`dx = -dy · sin x`."""
    return -(dy * op.Sin(x))


@slope("Tan", of="y")
def tan_grad(op: Any, y: Any, dy: Any) -> Any:
    """`dx = dy · (1 + y²)`."""
    return dy * (y * y + 1.0)


@slope("Asin", of="x")
def asin_grad(op: Any, x: Any, dy: Any) -> Any:
    """`dx = dy / √(1 - x²)`."""
    return dy / op.Sqrt((1.0 - x) * (x + 1.0))


@slope("Acos", of="x")
def acos_grad(op: Any, x: Any, dy: Any) -> Any:
    """`dx = -dy / √(1 - x²)`."""
    return -(dy / op.Sqrt((1.0 - x) * (x + 1.0)))


@slope("Atan", of="x")
def atan_grad(op: Any, x: Any, dy: Any) -> Any:
    """`dx = dy / (1 + x²)`."""
    return dy / (x * x + 1.0)


@slope("Sinh", of="x", apart=("native",))
def sinh_grad(op: Any, x: Any, dy: Any) -> Any:
    """`dx = dy · cosh x`."""
    return dy * op.Cosh(x)


@slope("Cosh", of="x", apart=("native",))
def cosh_grad(op: Any, x: Any, dy: Any) -> Any:
    """`dx = dy · sinh x`."""
    return dy * op.Sinh(x)


@slope("Asinh", of="x")
def asinh_grad(op: Any, x: Any, dy: Any) -> Any:
    """`dx = dy / √(x² + 1)`."""
    return dy / op.Sqrt(x * x + 1.0)


@slope("Acosh", of="x")
def acosh_grad(op: Any, x: Any, dy: Any) -> Any:
    """`dx = dy / √(x² - 1)`."""
    return dy / op.Sqrt((x - 1.0) * (x + 1.0))


@slope("Atanh", of="x")
def atanh_grad(op: Any, x: Any, dy: Any) -> Any:
    """`dx = dy / (1 - x²)`."""
    return dy / ((1.0 - x) * (x + 1.0))


@elementwise("Erf", native="erf")
def erf(op: Any, x: Any) -> Any:
    """The error function."""
    return op.Erf(x)


@slope("Erf", of="x")
def erf_grad(op: Any, x: Any, dy: Any) -> Any:
    """`dx = dy · 2/√π · exp(-x²)`."""
    return dy * (op.Exp(-(x * x)) * (2 / math.sqrt(math.pi)))

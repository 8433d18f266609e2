"""Python's operators between values that onnx-ir leaves out: `**`, `@`, `abs`, `mean` and `sum`.

onnx-ir gives values `+ - * /` and unary `-`, which emit through a handler; these do so as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir


def _handler(value: ir.Value) -> Any:
    return value._magic_handler  # noqa: SLF001 - as the operators of onnx-ir ask for it


def _power(base: ir.Value, exponent: Any) -> Any:
    return _handler(base).Pow(base, exponent)


def _power_of(exponent: ir.Value, base: Any) -> Any:
    return _handler(exponent).Pow(base, exponent)


def _product(left: ir.Value, right: Any) -> Any:
    return _handler(left).MatMul(left, right)


def _product_of(right: ir.Value, left: Any) -> Any:
    return _handler(right).MatMul(left, right)


def _absolute(value: ir.Value) -> Any:
    return _handler(value).Abs(value)


def _mean(value: ir.Value, axes: int | Sequence[int] | None = None) -> Any:
    """The mean over axes, which are left out; over all elements where none is given."""
    return _reduced("ReduceMean", value, axes)


def _sum(value: ir.Value, axes: int | Sequence[int] | None = None) -> Any:
    """The sum over axes, which are left out; over all elements where none is given."""
    return _reduced("ReduceSum", value, axes)


def _reduced(kind: str, value: ir.Value, axes: int | Sequence[int] | None) -> Any:
    emit = getattr(_handler(value), kind)
    if axes is None:
        return emit(value, keepdims=0)
    return emit(value, [axes] if isinstance(axes, int) else list(axes), keepdims=0)


def install() -> None:
    """Give these operators to all values."""
    methods = {
        "__pow__": _power, "__rpow__": _power_of, "__matmul__": _product,
        "__rmatmul__": _product_of, "__abs__": _absolute, "mean": _mean, "sum": _sum,
    }  # fmt: skip
    for name, method in methods.items():
        setattr(ir.Value, name, method)

"""Elementwise operators as formulas, each written once.

A formula is `f(op, *inputs, **attributes)`: `op` has the operators of ONNX by name, values have
`+ - * /`, and attributes have the defaults of the standard.  From it follow the kernel
(`gradtool.ops.elementwise.kernel_formulas`), the program of the native library, the count of
operations, and, for an operator of our own, the body; a `slope` is the gradient rule as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import onnx_ir as ir

from gradtool.graph.attributes import arguments
from gradtool.graph.composites import DOMAIN
from gradtool.graph.families import full_name, split_name
from gradtool.graph.registry import Registry

F = TypeVar("F", bound=Callable[..., Any])
Part = Literal["kernel", "native"]


@dataclass(frozen=True)
class Operation:
    """An operator that formulas are made of: numpy's name, and that of a step of the library.

    It `counts` so many operations for each element.
    """

    ufunc: str
    step: str
    inputs: int
    counts: int


def _table(inputs: int, counts: int, **operations: str) -> dict[str, Operation]:
    said = {name: words.partition(" ") for name, words in operations.items()}
    return {name: Operation(ufunc, step, inputs, counts) for name, (ufunc, _, step) in said.items()}


OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    _table(
        1, 1, Neg="negative neg", Abs="absolute abs", Exp="exp exp", Log="log log",
        Sqrt="sqrt sqrt", Sin="sin", Cos="cos", Tan="tan", Asin="arcsin", Acos="arccos",
        Atan="arctan", Sinh="sinh", Cosh="cosh", Asinh="arcsinh", Acosh="arccosh",
        Atanh="arctanh", Tanh="tanh tanh", Floor="floor", Ceil="ceil", Round="rint",
        Sign="sign sign", IsNaN="isnan",
    )
    | _table(1, 0, Not="logical_not", BitwiseNot="invert")
    | _table(
        2, 1, Add="add add", Sub="subtract sub", Mul="multiply mul", Equal="equal equal",
        Less="less", LessOrEqual="less_equal", Greater="greater greater",
        GreaterOrEqual="greater_equal",
    )
    | _table(
        2, 0, And="logical_and", Or="logical_or", Xor="logical_xor", BitwiseAnd="bitwise_and",
        BitwiseOr="bitwise_or", BitwiseXor="bitwise_xor",
    )
)  # fmt: skip

OTHERS = (
    "BitShift", "Cast", "CastLike", "Clip", "Div", "Identity", "IsInf", "Max", "Mean", "Min", "Mod",
    "Pow", "Reciprocal", "Sum", "Where",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Formula:
    """A formula as an operator.

    The result may lie over the inputs `over`, and has the shape and type of the first of them.
    `counts` are its operations for each element where the formula does not say them.  The library
    runs `native` instead: the name of a step, or a formula whose steps it has.  Parts that are
    `apart` are written by hand, or do not exist.  `of` says what the gradient of an operator reads,
    its input or its result; where a builder asks for that, a body is computed `in_pieces`.
    """

    domain: str
    op: str
    formula: Callable[..., Any]
    over: tuple[int, ...]
    counts: int | None = None
    native: str | Callable[..., Any] = ""
    apart: tuple[Part, ...] = ()
    of: Literal["x", "y"] | None = None
    in_pieces: bool = False

    since = 1

    @property
    def name(self) -> str:
        """`Op`, or `domain::Op` outside the standard domain."""
        return full_name(self.domain, self.op)

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The attributes with a default."""
        found = inspect.signature(self.formula).parameters.values()
        return {p.name: p.default for p in found if p.default is not p.empty}

    @cached_property
    def inputs(self) -> int:
        """Number of inputs."""
        return _inputs(self.formula)


FORMULAS = Registry[Formula]("formulas", "formula", function="formula")


def elementwise(
    name: str, *, over: tuple[int, ...] | None = None, **declared: Any
) -> Callable[[F], F]:
    """Register the decorated formula as the operator `name`, with the fields of its `Formula`.

    Its result may lie over any of its inputs, unless `over` says over which.
    """

    def register(formula: F) -> F:
        places = tuple(range(_inputs(formula))) if over is None else over
        FORMULAS.add(Formula(*split_name(name), formula, places, **declared))
        return formula

    return register


def _inputs(formula: Callable[..., Any]) -> int:
    return len(inspect.getfullargspec(formula).args) - 1


def slope(name: str, *, of: Literal["x", "y"], **declared: Any) -> Callable[[F], F]:
    """Register the decorated formula as the gradient of the operator `name`.

    It is `f(op, x, dy, **attributes)`, or with `of="y"` reads the operator's result instead.
    """
    return elementwise(f"{DOMAIN}::{name}Grad", of=of, **declared)


def find(name: str) -> Formula | None:
    """The formula of an operator, or None."""
    return FORMULAS.find(*split_name(name), 1)


def attributes(node: ir.Node) -> dict[str, Any]:
    """The attributes of a node with a formula, defaults included."""
    found = FORMULAS.find(node.domain, node.op_type, 1)
    assert found is not None  # noqa: S101 - the callers' operators have one
    return found.defaults | arguments(node)


def elementwise_operators() -> list[str]:
    """The elementwise standard operators, by name."""
    declared = (formula.op for formula in FORMULAS.entries() if not formula.domain)
    return sorted({*OPERATIONS, *OTHERS, *declared})

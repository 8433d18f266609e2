"""Sizes written as expressions, such as `2*N` or `floor(H/2 - 3/2) + 1`: read without trust."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sympy

_TEXT = re.compile(r"[\w\s+\-*/%(),]+", re.ASCII)
_GLUED = re.compile(r"(?<!\w)\d+[^\W\d]")  # 2N: Python's own warning, and no number
_LONGEST = 200
_NESTING = 6
_MOST_PARTS = 24
_LARGEST = 10**9
_HIGHEST_POWER = 4


def parse(text: str) -> sympy.Expr | None:
    """The expression of a text in names and whole numbers, with its rounding.

    None if it is none, or larger than sizes are: a file may hold any text there.
    """
    if len(text) > _LONGEST or not _TEXT.fullmatch(text) or _GLUED.search(text):
        return None
    try:
        read: sympy.Expr = _Reader().read(ast.parse(text.strip(), mode="eval").body, _NESTING)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError, TypeError):
        return None
    return read if read.free_symbols and not read.has(*_nothing()) else None


def linear(expr: sympy.Expr, symbol: str) -> tuple[int, sympy.Expr] | None:
    """Factor `a` and rest `b` of `a*symbol + b`, `a` a whole number and `b` without divisions.

    None if it has another form.
    """
    import sympy

    (x,) = [s for s in expr.free_symbols if str(s) == symbol] or [None]
    if x is None or expr.has(sympy.floor, sympy.Mod, sympy.Max, sympy.Min):
        return None
    factor, rest = sympy.expand(expr).coeff(x, 1), sympy.expand(expr).coeff(x, 0)
    exact = sympy.expand(factor * x + rest - expr) == 0 and sympy.fraction(rest)[1] == 1
    return (int(factor), rest) if exact and factor.is_Integer and factor != 0 else None


def _nothing() -> tuple[Any, ...]:
    import sympy

    return sympy.nan, sympy.zoo, sympy.oo, -sympy.oo


class _Reader:
    """Turns the syntax tree of one text into an expression, part by part."""

    def __init__(self) -> None:
        self.parts = 0

    def read(self, node: ast.expr, depth: int) -> Any:
        """The expression of a part. Raises ValueError where it is no size."""
        import sympy

        self.parts += 1
        if depth < 0 or self.parts > _MOST_PARTS:
            raise ValueError("too large")
        match node:
            case ast.Name(id=name):
                return sympy.Symbol(name, integer=True, positive=True)
            case ast.Constant(value=int(number)) if number <= _LARGEST and number is not True:
                return sympy.Integer(number)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.read(operand, depth)
            case ast.BinOp(
                op=ast.Pow(), left=ast.Name() as left, right=ast.Constant(value=int(power))
            ):
                if 1 <= power <= _HIGHEST_POWER:
                    return self.read(left, depth) ** power
            case ast.BinOp(op=operator, left=left, right=right) if type(operator) in _OPERATORS:
                # A sum leans to the left as far as it is long; its right sides are its parts.
                below = depth if isinstance(left, ast.BinOp) else depth - 1
                a, b = self.read(left, below), self.read(right, depth - 1)
                return _OPERATORS[type(operator)](a, b)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                count, function = _FUNCTIONS.get(name, (0, None))
                if function is not None and len(args) == count:
                    return function(*(self.read(each, depth - 1) for each in args))
        raise ValueError("no size")


def _floor(value: Any) -> Any:
    import sympy

    return sympy.floor(value)


def _ceiling(value: Any) -> Any:
    return -_floor(-value)


def _larger(a: Any, b: Any) -> Any:
    import sympy

    return sympy.Max(a, b)


def _smaller(a: Any, b: Any) -> Any:
    import sympy

    return sympy.Min(a, b)


def _remainder(a: Any, b: Any) -> Any:
    import sympy

    return sympy.Mod(a, b)


def _quotient(a: Any, b: Any) -> Any:
    return a / b


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: _quotient,
    ast.FloorDiv: lambda a, b: _floor(a / b),
    ast.Mod: _remainder,
}
# Names of sympy, of Python, and those in which PyTorch writes the sizes of its exports.
_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "floor": (1, _floor),
    "ceiling": (1, _ceiling),
    "ceil": (1, _ceiling),
    "Max": (2, _larger),
    "max": (2, _larger),
    "Min": (2, _smaller),
    "min": (2, _smaller),
    "Mod": (2, _remainder),
    "mod": (2, _remainder),
    "PythonMod": (2, _remainder),
    "FloorDiv": (2, lambda a, b: _floor(a / b)),
    "CleanDiv": (2, _quotient),
    "IntTrueDiv": (2, _quotient),
    "CeilDiv": (2, lambda a, b: _ceiling(a / b)),
    "FloorToInt": (1, _floor),
    "TruncToInt": (1, _floor),
    "CeilToInt": (1, _ceiling),
}

"""Symbols solved from sizes: the `N` of an axis `2*N` of size 8.

Each size narrows the one symbol of its expression that is still open to a range of whole numbers;
sizes that rise with it are looked up by halving.  A symbol without a range of one number stays
open: 5 is `floor(H/2)` of 10 and of 11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from gradtool.errors import UsageError

LARGEST = 2**40


@dataclass(frozen=True)
class Known:
    """The size of an axis `dim` of a model; `place` names its input or flag."""

    place: str
    axis: int
    dim: ir.SymbolicDim
    size: int


def solve(sizes: Iterable[Known], given: Mapping[str, int] | None = None) -> dict[str, int]:
    """The symbols decided by sizes, and those given.

    Raises:
        UsageError: two sizes contradict each other, or no symbol gives one.
    """
    found = dict(given or {})
    expressions = []
    for known in sizes:
        expr = known.dim._expr  # noqa: SLF001 - onnx-ir offers no public expression
        if expr is None:
            continue
        if not expr.is_Symbol:
            expressions.append((known, expr))
        elif found.setdefault(str(expr), known.size) != known.size:
            raise UsageError(
                f"{known.place}: {expr} is given as {found[str(expr)]} and as {known.size}"
            )
    ranges: dict[str, tuple[int, int]] = {}
    before = None
    while expressions and before != (len(expressions), len(found)):
        before = len(expressions), len(found)
        expressions = [pair for pair in expressions if not _narrow(*pair, found, ranges)]
        found.update({n: low for n, (low, high) in ranges.items() if low == high})
    return found


def _narrow(
    known: Known, expr: Any, found: Mapping[str, int], ranges: dict[str, tuple[int, int]]
) -> bool:
    """Let a size narrow its last open symbol, or be checked; whether it has no more to say."""
    bound = {s: found[str(s)] for s in expr.free_symbols if str(s) in found}
    rest = expr.subs(bound)
    if not rest.free_symbols:
        if rest != known.size:
            raise UsageError(_told(known, bound, f" = {rest}"))
        return True
    if len(rest.free_symbols) > 1:
        return False
    (symbol,) = rest.free_symbols
    for sign in (1, -1):
        if _rises(sign * rest):
            low, high = _range(sign * rest, symbol, sign * known.size)
            before = ranges.get(str(symbol), (0, LARGEST))
            ranges[str(symbol)] = max(low, before[0]), min(high, before[1])
            if low > high:
                raise UsageError(_told(known, bound, f", which no {symbol} makes"))
            if ranges[str(symbol)][0] > ranges[str(symbol)][1]:
                between = " to ".join(map(str, dict.fromkeys(before)))
                raise UsageError(_told(known, bound, f"; {symbol} is {between} elsewhere"))
            return low == high
    return False


def _told(known: Known, bound: Mapping[Any, int], why: str) -> str:
    sizes = ", ".join(f"{s} = {size}" for s, size in sorted(bound.items(), key=str))
    told = f"{known.place} has size {known.size} on axis {known.axis}, the model takes {known.dim}"
    return f"{told}{why}{f' ({sizes})' if sizes else ''}"


def _rises(expr: Any) -> bool:
    """Whether an expression never falls while its symbols grow from 0, judged by its form."""
    import sympy

    if expr.is_Rational or expr.is_Symbol:
        return True
    if expr.is_Add or expr.func in (sympy.floor, sympy.Max, sympy.Min):
        return all(map(_rises, expr.args))
    return (expr.is_Mul or expr.is_Pow) and all(_is_positive(a) for a in expr.args)


def _is_positive(expr: Any) -> bool:
    """Whether an expression rises and is never below 0."""
    import sympy

    if expr.is_Rational or expr.is_Symbol:
        return bool(expr.is_Symbol or expr >= 0)
    if expr.is_Pow:
        return _is_positive(expr.base) and bool(expr.exp.is_Integer and expr.exp > 0)
    inner = expr.is_Add or expr.is_Mul or expr.func in (sympy.floor, sympy.Max, sympy.Min)
    return inner and all(map(_is_positive, expr.args))


def _range(expr: Any, symbol: Any, size: int) -> tuple[int, int]:
    """The least and the largest number for a size; the first above the second if none."""
    least = _first(lambda x: bool(expr.subs(symbol, x) >= size))
    return least, _first(lambda x: bool(expr.subs(symbol, x) > size)) - 1


def _first(holds: Callable[[int], bool]) -> int:
    """The least number from which on a condition holds, `LARGEST + 1` if there is none."""
    below, above = -1, 1
    while not holds(above):
        below, above = above, 2 * above
        if above > LARGEST:
            return LARGEST + 1
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if holds(middle) else (middle, above)
    return above

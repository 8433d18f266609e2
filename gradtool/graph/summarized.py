"""Long sizes: from some length on, such an expression is a symbol of its own.

A concatenation of a hundred open sizes has a size of a hundred terms, the next node one of a
hundred and one, and each of them would be written out again. So a size that is too long has the
digest of its text for a name: like expressions have one name, wherever they are met.
"""

from __future__ import annotations

import functools
import hashlib
import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, MutableMapping
from fractions import Fraction
from typing import Any

import onnx_ir as ir

from gradtool.graph.renamed import NAME, UNSURE, whatever_named

Dim = int | ir.SymbolicDim

MOST_SYMBOLS = 4
MOST_COMPARED = 2  # symbols under Max or Min: each is compared with each other
LONGEST = 400  # characters
MORE = "_z"  # prefix of names of possibly empty sizes plus one

_COMPARING = re.compile(r"\b(?:Max|Min|max|min)\(")
_DEFINED: dict[str, ir.SymbolicDim] = {}


def summarized(size: Dim, *, sure: bool = True) -> Dim:
    """A size, or its name if it is long; unless `sure` it may be negative.

    Shape inference takes every symbol for positive: a size that may be 0 is one less than a name.
    """
    if isinstance(size, int) or not is_long(size):
        return size
    return _shortened(size, sure and not any(map(_may_be_negative, size.free_symbols())))


@functools.lru_cache(maxsize=4096)
def _shortened(size: ir.SymbolicDim, sure: bool) -> ir.SymbolicDim:  # noqa: FBT001
    if not sure:
        return _named(size, f"{UNSURE}_s")
    return _named(size, "_s") if _is_positive(size) else _named(size + 1, MORE) - 1


@whatever_named
def _is_positive(size: ir.SymbolicDim) -> bool:
    expr: Any = size._expr  # noqa: SLF001 - onnx-ir offers no public expression
    return bool(expr.is_positive)


def _named(size: ir.SymbolicDim, begin: str) -> ir.SymbolicDim:
    name = f"{begin}{hashlib.sha256(str(size.value).encode()).hexdigest()[:16]}"
    _DEFINED.setdefault(name, size)
    return ir.SymbolicDim(name)


def _may_be_negative(symbol: str) -> bool:
    return symbol.startswith(UNSURE)


def is_long(size: Dim) -> bool:
    """Whether a size has a name of its own: by its text, which every size has at hand."""
    text = "" if isinstance(size, int) else size.value or ""
    if len(text) <= 2 * MOST_COMPARED:  # one letter and one operator each
        return False
    most = MOST_COMPARED if _COMPARING.search(text) else MOST_SYMBOLS
    return len(text) > LONGEST or len(set(NAME.findall(text))) > most


def definition(symbol: str) -> ir.SymbolicDim | None:
    """The expression named by a symbol; None of other symbols."""
    return _DEFINED.get(symbol)


def follow(sizes: Iterable[Dim], given: Collection[str]) -> bool:
    """Whether sizes consist of given symbols and numbers, by definitions if they have some."""
    made, seen = list(sizes), set(given)
    while made:
        size = made.pop()
        if isinstance(size, int):
            continue
        for name in size.free_symbols() - seen if size.value is not None else ("",):
            of = definition(name)
            if of is None:
                return False
            seen.add(name)
            made.append(of)
    return True


def evaluated(
    size: Dim, known: MutableMapping[str, int], other: Callable[[str], int]
) -> int | None:
    """A size with `known` symbols, defined ones by their definitions, the rest by `other`.

    Symbols evaluated on the way are `known` from then on. None if it is no whole number.
    """
    if isinstance(size, int):
        return size
    waiting = sorted(size.free_symbols() - known.keys())
    while waiting:
        name = waiting[-1]
        of = definition(name)
        behind = set() if of is None or name in known else of.free_symbols() - known.keys()
        if behind:
            waiting += sorted(behind)
            continue
        waiting.pop()
        if name not in known:
            found = None if of is None else _number(of, known)
            known[name] = other(name) if found is None else found
    return _number(size, known)


def _number(size: ir.SymbolicDim, known: MutableMapping[str, int]) -> int | None:
    """The value of an expression for these sizes of symbols, if it is a whole number."""
    import sympy

    rules: dict[Any, Callable[..., Any]] = {
        sympy.Add: lambda *terms: sum(terms),
        sympy.Mul: lambda *factors: math.prod(factors),
        sympy.Max: max,
        sympy.Min: min,
        sympy.Mod: operator.mod,
        sympy.floor: math.floor,
        sympy.ceiling: math.ceil,
        sympy.Pow: lambda base, power: Fraction(base) ** power,
    }

    def value(expr: Any) -> Any:
        if expr.is_Symbol:
            return known[str(expr)]
        if expr.is_Rational:
            return Fraction(int(expr.p), int(expr.q))
        return rules[expr.func](*map(value, expr.args))

    try:
        found = value(size._expr)  # noqa: SLF001 - onnx-ir offers no public expression
    except (AttributeError, KeyError, ArithmeticError, ValueError):
        return None
    return int(found) if found == math.floor(found) else None

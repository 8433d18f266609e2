"""Sizes equal but for the names of their symbols: an answer for one holds for all.

A file of many open sizes asks the same of each of them: how many windows `n7` has, whether
`n7 - 1` may be below 0. A symbol is an unknown positive number whatever its name, so each such
question is answered once. Names stand in the order of the alphabet, by which sympy arranges terms.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

import onnx_ir as ir

Dim = Any  # int | ir.SymbolicDim, or no size and without names

UNSURE = "_v"  # prefix of symbols of possibly negative numbers
NAME = re.compile(r"[^\W\d][\w.]*+(?!\()")
MOST_KEPT = 4096  # answers of one function

_Function = TypeVar("_Function", bound=Callable[..., Any])


def names_in(sizes: Iterable[Dim]) -> list[str]:
    """The symbols of sizes, in the order of the alphabet."""
    return sorted(
        {n for s in sizes if isinstance(s, ir.SymbolicDim) for n in NAME.findall(s.value or "")}
    )


def rewritten(size: Dim, names: Mapping[str, str]) -> Dim:
    """The text of a size with other names; anything else as it is."""
    if not isinstance(size, ir.SymbolicDim) or size.value is None:
        return size
    return NAME.sub(lambda found: names[found[0]], size.value)


def renamed(size: Dim, names: Mapping[str, str]) -> Dim:
    """A size with other names in the same order, not simplified again."""
    if not isinstance(size, ir.SymbolicDim) or size.value is None:
        return size
    made = ir.SymbolicDim(rewritten(size, names))
    expr: Any = size._expr_cache  # noqa: SLF001 - onnx-ir offers no public expression
    if expr is not None and expr.args:
        made._expr_cache = _replaced(expr, names)  # noqa: SLF001
    return made


def _replaced(expr: Any, names: Mapping[str, str]) -> Any:
    import sympy

    if expr.is_Symbol:
        return sympy.Symbol(names[expr.name], integer=True, positive=True)
    if not expr.args:
        return expr
    return expr.func(*(_replaced(each, names) for each in expr.args), evaluate=False)


def whatever_named(function: _Function) -> _Function:
    """A function of sizes whose answers are kept for all sizes of other names.

    Of possibly negative sizes it is asked anew: they are told by the names.
    """
    kept = functools.lru_cache(maxsize=MOST_KEPT)(function)

    @functools.wraps(function)
    def answered(*given: Any) -> Any:
        names = names_in(given)
        if not names or any(name.startswith(UNSURE) for name in names):
            return kept(*given)
        usual = {name: f"n{place:03}" for place, name in enumerate(names)}
        found = kept(*(renamed(each, usual) for each in given))
        return renamed(found, {new: name for name, new in usual.items()})

    return cast("_Function", answered)

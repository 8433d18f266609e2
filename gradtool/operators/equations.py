"""The equations of Einsum: which axis of which operand is which index."""

from __future__ import annotations

import string
from collections.abc import Sequence

Indices = tuple[str, ...]


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[Indices], Indices]:
    """The indices of each operand and of the result.

    A letter is itself; an axis under an ellipsis is its number, counted from the right.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    hidden = [rank - len(t.replace("...", "")) for t, rank in zip(terms, ranks, strict=True)]
    operands = [_indices(t, n) for t, n in zip(terms, hidden, strict=True)]
    widest = max((n for t, n in zip(terms, hidden, strict=True) if "..." in t), default=0)
    if arrow:
        return operands, _indices(right, widest)
    letters = left.replace("...", "").replace(",", "")
    once = sorted(c for c in set(letters) if letters.count(c) == 1)
    return operands, (*_indices("...", widest), *once)


def _indices(term: str, hidden: int) -> Indices:
    before, dots, after = term.partition("...")
    numbers = [str(n) for n in reversed(range(hidden))] if dots else []
    return (*before, *numbers, *after)


def write(operands: Sequence[Sequence[str]], result: Sequence[str]) -> str:
    """The equation of these indices, any hashable names, in letters of its own."""
    letters: dict[str, str] = {}
    for index in (i for term in operands for i in term):
        letters.setdefault(index, string.ascii_letters[len(letters)])
    terms = ("".join(letters[i] for i in term) for term in (*operands, result))
    *left, right = terms
    return f"{','.join(left)}->{right}"

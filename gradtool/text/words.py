"""Small words for messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggest(wrong: str, names: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` if a name comes close, else nothing."""
    close = get_close_matches(wrong, [n for n in names if n], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def count(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def some(names: Iterable[str], most: int = 8) -> str:
    """The first names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more

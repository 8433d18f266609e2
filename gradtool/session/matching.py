"""Names that patterns choose."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from gradtool.errors import UsageError
from gradtool.text.words import some, suggest


def matching(
    patterns: Sequence[str], names: Collection[str], what: str, others: Collection[str] = ()
) -> list[str]:
    """The names that match any of the patterns, in their own order; an exact name wins.

    A pattern that matches none of them is one of `others`.

    Raises:
        UsageError: a pattern matches nothing.
    """
    found: set[str] = set()
    for pattern in patterns:
        matched = _matched(pattern, names) or _matched(pattern, others)
        if not matched:
            hint = suggest(pattern, names) or f"; there are {some(names) or 'none'}"
            raise UsageError(f"no {what} {pattern!r}{hint}")
        found.update(matched)
    return [name for name in dict.fromkeys((*names, *others)) if name in found]


def _matched(pattern: str, names: Collection[str]) -> list[str]:
    return [pattern] if pattern in names else [n for n in names if fnmatchcase(n, pattern)]

"""Names that patterns choose."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from gradtool.errors import UsageError
from gradtool.text.words import some, suggest


def matching(patterns: Sequence[str], names: Collection[str], what: str) -> list[str]:
    """The names that match any of the patterns, in their own order; an exact name wins.

    Raises:
        UsageError: a pattern matches nothing.
    """
    found: set[str] = set()
    for pattern in patterns:
        matched = [pattern] if pattern in names else [n for n in names if fnmatchcase(n, pattern)]
        if not matched:
            hint = suggest(pattern, names) or f"; there are {some(names) or 'none'}"
            raise UsageError(f"no {what} {pattern!r}{hint}")
        found.update(matched)
    return [name for name in names if name in found]

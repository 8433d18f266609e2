"""Tables of a configuration, read key by key: a mistake names file, table and key."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeGuard

from gradtool.errors import UsageError
from gradtool.text.names import escape, shorten
from gradtool.text.words import suggest

_LARGEST = 1 << 62
_LONGEST = 60  # characters of a wrong value in a message


class Table:
    """A table of `known` keys alone; `where` begins its messages."""

    def __init__(self, found: object, where: str, known: Iterable[str]) -> None:
        self.where = where
        self.known = tuple(known)
        if not isinstance(found, Mapping):
            raise UsageError(f"{where} is {_shown(found)}: write a table, {{ key = value }}")
        self.found: Mapping[str, Any] = found
        for key in found:
            if key not in self.known:
                hint = suggest(key, self.known) or f"; there are {', '.join(self.known)}"
                raise UsageError(f"{where}: unknown key {_shown(key)}{hint}")

    def __contains__(self, key: str) -> bool:
        return key in self.found

    def refuse(self, key: str, wanted: str) -> NoReturn:
        """Raise UsageError: the value of a key is invalid."""
        raise UsageError(f"{self.where}: {key} is {_shown(self.found.get(key))}: write {wanted}")

    def text(self, key: str, default: str) -> str:
        """A nonempty text."""
        found = self.found.get(key, default)
        if not isinstance(found, str) or not found.strip():
            self.refuse(key, "a text")
        return found

    def flag(self, key: str, *, default: bool = False) -> bool:
        """True or false."""
        found = self.found.get(key, default)
        if not isinstance(found, bool):
            self.refuse(key, "true or false")
        return found

    def texts(self, key: str, default: Iterable[str] = ()) -> tuple[str, ...]:
        """A text, or a list of them."""
        found = self.found.get(key, list(default))
        listed = [found] if isinstance(found, str) else found
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            self.refuse(key, "a text or a list of texts")
        return tuple(listed)

    def choice(self, key: str, choices: Iterable[str], default: str) -> str:
        """One of a few words."""
        found, listed = self.found.get(key, default), list(choices)
        if found not in listed:
            hint = suggest(found, listed) if isinstance(found, str) else ""
            self.refuse(key, f"one of {', '.join(listed)}{hint}")
        return str(found)

    def size(self, key: str, *, least: int = 1) -> int | None:
        """A whole number, None if absent."""
        found = self.found.get(key)
        if found is not None and not is_size(found, least):
            self.refuse(key, f"a whole number, at least {least}")
        return found

    def number(self, key: str) -> float | None:
        """A positive number, None if absent."""
        found = self.found.get(key)
        if found is None:
            return None
        if (
            isinstance(found, bool)
            or not isinstance(found, int | float)
            or not 0 < found < math.inf
        ):
            self.refuse(key, "a positive number")
        return float(found)

    def table(self, key: str, known: Iterable[str]) -> Table:
        """A table in this one, empty if absent."""
        return Table(self.found.get(key, {}), f"{self.where}: {key}", known)

    def named(self, key: str) -> Table:
        """A table in this one whose keys are the user's own names."""
        found = self.found.get(key, {})
        return Table(found, f"{self.where}: {key}", found if isinstance(found, Mapping) else ())


def is_number(found: object) -> TypeGuard[float]:
    """Whether a value is a finite number."""
    return isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found)


def is_size(found: object, least: int = 1) -> bool:
    """Whether a value is a whole number of at least so much."""
    return isinstance(found, int) and not isinstance(found, bool) and least <= found < _LARGEST


def _shown(found: object) -> str:
    return shorten(escape(repr(found)), _LONGEST, ellipsis="...")

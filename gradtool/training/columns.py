"""Columns of tables: texts as classes, and columns that are no numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar

import numpy as np

from gradtool.errors import UsageError
from gradtool.exec import available_memory
from gradtool.text.words import some, suggest

Array = np.ndarray[Any, Any]
MOST_CLASSES = 1 << 20
Classes = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Unread:
    """A column of so many rows that is no numbers; `why` is said where an input takes it."""

    shape: tuple[int, ...]
    why: str
    ndim: ClassVar[int] = 1
    nbytes: ClassVar[int] = 0
    dtype: ClassVar[np.dtype[Any]] = np.dtype(object)

    def take(self, indices: Any, axis: int = 0) -> Array:
        """Raise UsageError."""
        del indices, axis
        raise UsageError(self.why)


@dataclass
class Categories:
    """Columns whose texts are classes: those that match `globs`; `known` are classes by column.

    `names` has the classes of each column that was read.
    """

    globs: Sequence[str] = ()
    known: Classes = field(default_factory=dict)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _codes: dict[str, dict[str, int]] = field(default_factory=dict)

    def has(self, column: str) -> bool:
        """Whether a column is one of classes."""
        return column in self.known or any(fnmatchcase(column, glob) for glob in self.globs)

    def require(self, source: str, columns: Sequence[str]) -> None:
        """Refuse a glob that matches none of the columns.

        Raises:
            UsageError: naming it.
        """
        for glob in self.globs:
            if not any(fnmatchcase(name, glob) for name in columns):
                hint = suggest(glob, columns) or f"; there are {some(columns)}"
                raise UsageError(f"{source}: --categories {glob}: no such column{hint}")

    def codes(self, column: str, texts: Iterable[str]) -> Array:
        """Numbers of texts in the order in which they come; `finished` puts classes in theirs.

        Raises:
            UsageError: a class is none of those that are known, or there are too many.
        """
        known = self.known.get(column)
        if column not in self._codes:
            self._codes[column] = {text: number for number, text in enumerate(known or ())}
        found = self._codes[column]
        made = np.array([found.setdefault(text, len(found)) for text in texts], np.int64)
        if known is not None and len(found) > len(known):
            raise UsageError(
                f"column {column!r} has the class {list(found)[len(known)]!r}, which the data that "
                f"are trained on have not: {some(list(known))}"
            )
        if len(found) > MOST_CLASSES:
            raise UsageError(f"column {column!r} has more than {MOST_CLASSES} different texts")
        return made

    def finished(self, column: str, codes: Array) -> Array:
        """The codes of all rows as int64, numbered in the order of the names of the classes."""
        found = list(self._codes.get(column, self.known.get(column, ())))
        ordered = list(self.known[column]) if column in self.known else sorted(found)
        place = {text: number for number, text in enumerate(ordered)}
        self.names[column] = tuple(ordered)
        return np.array([place[text] for text in found], np.int64)[codes]


def chosen(text: str, arrays: Sequence[str], others: Iterable[str]) -> list[str] | None:
    """The columns that `f*` or `age,fare` mean, in the order of the data; None where it is a name.

    A glob leaves out columns that `others` name.  Columns that are named are in the order given.
    """
    if text in arrays or not any(each in text for each in ",*?["):
        return None
    taken = set(others)
    found: dict[str, None] = {}
    for part in text.split(","):
        if part in arrays:
            found[part] = None
        else:
            found |= {n: None for n in arrays if fnmatchcase(n, part) and n not in taken}
    return list(found)


def stacked(source: str, arrays: Mapping[str, Any], names: Sequence[str], dtype: Any) -> Array:
    """Columns of one number a row, side by side: [rows, columns] of a type, None for their own.

    Raises:
        UsageError: one is no numbers or has lists, or memory has no room for it.
    """
    for name in names:
        if isinstance(arrays[name], Unread):
            raise UsageError(arrays[name].why)
        if arrays[name].ndim != 1:
            shape = list(arrays[name].shape)
            raise UsageError(
                f"{source}: {name!r} has shape {shape}: only plain columns are stacked"
            )
    lengths = {arrays[name].shape[0] for name in names}
    if len(lengths) > 1:
        told = ", ".join(f"{name!r} {arrays[name].shape[0]}" for name in names)
        raise UsageError(f"{source}: different numbers of examples: {told}")
    made = np.dtype(dtype or np.result_type(*(arrays[name].dtype for name in names)))
    rows = lengths.pop()
    available_memory.require(rows * len(names) * made.itemsize, f"{source}: {len(names)} columns")
    found = np.empty((rows, len(names)), made)
    for place, name in enumerate(names):
        found[:, place] = np.asarray(arrays[name])
    return found

"""Tables in text: CSV and TSV with a header, and JSON objects a line; read a piece at a time."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np

from gradtool.errors import UsageError
from gradtool.exec import available_memory
from gradtool.io.stored import opened
from gradtool.text.units import format_bytes
from gradtool.training.columns import Array, Categories, Unread

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson")
_PIECE = 1 << 13  # rows that are read at once
_LONGEST = 1 << 24  # characters of a line
_BOOLEANS = {"true": True, "false": False}
Rows = Iterator[tuple[int, Sequence[Any]]]


@dataclass
class GrowingColumn:
    """A column as its pieces come: numbers, or `why` it has none."""

    name: str
    categories: Categories
    parts: list[Array] = field(default_factory=list)
    why: str = ""

    def add(self, values: Sequence[Any], lines: Sequence[int]) -> None:
        """Take the values of some rows, which stand in some lines of the file."""
        if self.why:
            return
        empty = next((n for n, value in enumerate(values) if value in ("", None)), None)
        if empty is not None:
            self._fail(f"is empty in line {lines[empty]}: fill it in, or leave the row out")
            return
        if self.categories.has(self.name):
            self.parts.append(self.categories.codes(self.name, map(str, values)))
            return
        found = _numbers(values)
        if isinstance(found, str):
            text = next((n for n, value in enumerate(values) if _is_text(value)), None)
            self._fail(
                found if text is None else
                f"has the text {str(values[text])[:40]!r} in line {lines[text]}: --categories "
                f"{self.name} takes texts as classes"
            )  # fmt: skip
        elif self.parts and found.shape[1:] != self.parts[0].shape[1:]:
            self._fail("has lists of different lengths")
        elif self.parts and (found.dtype.kind == "b") != (self.parts[0].dtype.kind == "b"):
            self._fail("has numbers and truth values")
        else:
            self.parts.append(found)

    def finished(self, rows: int) -> Array | Unread:
        """All rows."""
        if self.why or not rows:
            return Unread((rows,), self.why or f"column {self.name!r} has no rows")
        made = np.concatenate(self.parts)
        self.parts.clear()
        return self.categories.finished(self.name, made) if self.categories.has(self.name) else made

    def _fail(self, what: str) -> None:
        self.why = f"column {self.name!r} {what}"
        self.parts.clear()


def columns(path: Path, categories: Categories) -> dict[str, Array | Unread]:
    """Arrays by the names of columns: int64, float64 or bool, of lists as of JSON as well.

    Raises:
        UsageError: the file is no such table, or takes more memory than there is.
    """
    with opened(path) as file, _text(file) as text:
        try:
            reader = _objects if path.suffix in (".jsonl", ".ndjson") else _separated
            names, rows = reader(path, text)
            categories.require(str(path), names)
            return _gathered(path, file, [GrowingColumn(name, categories) for name in names], rows)
        except UsageError as error:
            said = str(error)
            raise error if said.startswith(f"{path}:") else UsageError(f"{path}: {said}") from error
        except (ValueError, csv.Error, RecursionError, MemoryError, OSError) as error:
            said = " ".join(str(error).split()) or type(error).__name__
            raise UsageError(f"{path}: cannot be read as {path.suffix[1:]}: {said}") from error


def _gathered(
    path: Path, file: BinaryIO, made: Sequence[GrowingColumn], rows: Rows
) -> dict[str, Array | Unread]:
    count, whole = 0, path.stat().st_size
    while piece := list(islice(rows, _PIECE)):
        lines = [line for line, _ in piece]
        for column, values in zip(made, zip(*(row for _, row in piece), strict=True), strict=True):
            column.add(values, lines)
        if not count:
            taken = sum(part.nbytes for column in made for part in column.parts)
            share = max(file.tell(), 1) if len(piece) == _PIECE else whole
            _require_room(path, 2 * taken * whole // max(share, 1))  # pieces, and all of a column
        count += len(piece)
    found = {column.name: column.finished(count) for column in made}
    return {
        name: each if not isinstance(each, Unread) else Unread(each.shape, f"{path}: {each.why}")
        for name, each in found.items()
    }


def _require_room(path: Path, total: int) -> None:
    free = available_memory.free()
    if free is not None and total > free:
        raise UsageError(
            f"{path}: its columns take about {format_bytes(total)} of memory, there is room for "
            f"{format_bytes(free)}: write them as .npy files, which stay on the disk"
        )


def _separated(path: Path, text: TextIO) -> tuple[list[str], Rows]:
    """The names of a table whose first line has them, and its rows with their lines."""
    lines = _lines(text)
    first = next(lines, "")
    separators = "\t" if path.suffix == ".tsv" else ",;\t"
    separator = max(separators, key=first.count)
    reader = csv.reader(_after(first, lines), delimiter=separator, strict=True)
    names = [name.strip() for name in next(reader, [])]
    if not names or not any(names):
        raise UsageError("is empty")
    if not isinstance(_numbers(names), str):
        raise UsageError("its first line is numbers: write the names of the columns there")
    _require_once(names)

    def rows() -> Rows:
        for row in reader:
            if row and len(row) != len(names):
                raise UsageError(
                    f"line {reader.line_num} has {len(row)} fields, the first line {len(names)}"
                )
            if row:
                yield reader.line_num, [each.strip() for each in row]

    return names, rows()


def _objects(path: Path, text: TextIO) -> tuple[list[str], Rows]:
    """The keys of the first line, and the values of all lines by these."""
    del path
    lines = enumerate(_lines(text), 1)
    first = next(((n, found) for n, line in lines if (found := parsed_object(n, line))), None)
    if first is None:
        raise UsageError("is empty")
    names = list(first[1])

    def rows() -> Rows:
        yield first[0], list(first[1].values())
        for number, line in lines:
            found = parsed_object(number, line)
            if found is not None and found.keys() != first[1].keys():
                other = next(iter(found.keys() ^ first[1].keys()))
                raise UsageError(
                    f"line {number} and the first differ: one of them has no {other!r}"
                )
            if found is not None:
                yield number, [found[name] for name in names]

    return names, rows()


def parsed_object(number: int, line: str) -> dict[str, Any] | None:
    """The object in a line of JSON; None in a blank one.

    Raises:
        UsageError: it is none, or has a key twice; the number of the line is told.
    """
    if not line.strip():
        return None
    try:
        found = json.loads(line, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise UsageError(f"line {number} is no JSON: {error.msg}") from error
    if not isinstance(found, dict):
        raise UsageError(f"line {number} is no JSON object")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _require_once([name for name, _ in pairs])
    return dict(pairs)


def _require_once(names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two columns are called {twice!r}")


def _lines(text: TextIO) -> Iterator[str]:
    while line := text.readline(_LONGEST):
        if len(line) == _LONGEST:
            raise UsageError(f"a line has more than {_LONGEST} characters")
        yield line


def _text(file: BinaryIO) -> TextIO:
    return io.TextIOWrapper(file, "utf-8-sig", newline="")


def _after(first: str, lines: Iterator[str]) -> Iterator[str]:
    yield first
    yield from lines


def _numbers(values: Sequence[Any]) -> Array | str:
    """Values of some rows as an array [rows, *sizes of lists], or why they are none."""
    if all(isinstance(value, str) for value in values):
        return _parsed(values)
    try:
        found = np.asarray(values)
    except ValueError:
        return "has lists of different lengths"
    if found.dtype.kind == "u":
        found = found.astype(np.float64)
    return found if found.dtype.kind in "bif" else "has something that is no number"


def _parsed(texts: Sequence[str]) -> Array | str:
    readers: tuple[Callable[[Sequence[str]], Array], ...] = (
        lambda all_: np.array(all_).astype(np.int64),
        lambda all_: np.array(all_).astype(np.float64),
        lambda all_: np.array([_BOOLEANS[each.lower()] for each in all_]),
    )
    for read in readers:
        try:
            return read(texts)
        except (ValueError, KeyError, OverflowError):
            continue
    return "has something that is no number"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and isinstance(_parsed([value]), str)

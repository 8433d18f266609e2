"""Tokens of the texts of a file, as they come: cut, left out or refused, and put into rows."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradtool.errors import UsageError
from gradtool.exec import available_memory
from gradtool.text.units import format_bytes
from gradtool.text.words import count
from gradtool.training.columns import Categories, Unread
from gradtool.training.data_options import DataOptions
from gradtool.training.text_files import TextFile
from gradtool.training.text_tables import GrowingColumn
from gradtool.training.token_rows import Array, TokenRows

_PIECE = 1024  # texts whose other columns are taken at once, and after which memory is looked at
Gathered = tuple[TokenRows, dict[str, Array | Unread], list[str]]


@dataclass
class Gathering:
    """What there is of a file so far, in texts of up to `length` tokens."""

    file: TextFile
    options: DataOptions
    categories: Categories
    length: int
    _ids: array[int] = field(default_factory=lambda: array("i"))
    _counts: bytearray = field(default_factory=bytearray)
    _starts: array[int] = field(default_factory=lambda: array("q", [0]))
    _lines: array[int] = field(default_factory=lambda: array("q"))
    _rest: list[Mapping[str, Any]] = field(default_factory=list)
    _columns: dict[str, GrowingColumn] | None = None
    _long: int = 0

    @property
    def _is_plain(self) -> bool:
        return self.file.form == "plain"

    def add(self, line: int, ids: Array, counts: Array, rest: Mapping[str, Any]) -> None:
        """Take the tokens of a text, which stands in some line, and what else is in that.

        Raises:
            UsageError: nothing of it is to be learned, it is too long, or memory has no room.
        """
        where, whole = f"{self.file.path}: line {line}", len(ids)
        if whole > self.length and not self._is_plain:
            self._long += 1
            if self.options.too_long == "refuse":
                raise UsageError(f"{where}: has {whole} tokens, more than {self.length}")
            if self.options.too_long == "skip":
                return
            ids, counts = ids[: self.length], counts[: self.length]
        if not self._is_plain and not counts[1:].any():  # nothing precedes the first one
            cut = f" within the first {self.length} of its {whole}" if whole > self.length else ""
            more = "; --too-long skip leaves it out" if cut else ""
            raise UsageError(f"{where}: no token{cut} is to be learned{more}")
        self._ids.frombytes(ids.tobytes())
        self._counts += counts.tobytes()
        self._starts.append(len(self._ids))
        self._lines.append(line)
        self._rest.append(rest)
        if len(self._rest) == _PIECE or self._is_plain:
            self._take_rest()
            self._require_room()

    @property
    def counted(self) -> tuple[int, int]:
        """The texts and the tokens so far."""
        return len(self._lines), len(self._ids)

    def finished(self) -> Gathered:
        """All rows, the other columns, and what people should hear.

        Raises:
            UsageError: there are none.
        """
        self._take_rest()
        path, texts = self.file.path, len(self._lines)
        ids, counts = np.frombuffer(self._ids, np.int32), np.frombuffer(self._counts, np.bool_)
        starts, lines = np.frombuffer(self._starts, np.int64), np.frombuffer(self._lines, np.int64)
        if not texts or len(ids) < 2:
            raise UsageError(f"{path}: holds no text" if not self._long else
                             f"{path}: all texts have more than {self.length} tokens")  # fmt: skip
        said = [f"{path}: {self._counted(texts, len(ids))}"]
        if self._is_plain:
            return self._windows(ids, starts, lines, said), {}, said
        counts = counts.copy()
        counts[starts[:-1]] = False
        rows = TokenRows(ids, counts, starts, starts[:-1], lines)
        if self.options.mask_prompt:
            said[0] += f", of which {np.count_nonzero(counts)} are learned"
        if self._long:
            what = "cut" if self.options.too_long == "cut" else "left out"
            said.append(f"{path}: {count(self._long, 'text')} of over {self.length} tokens: {what}")
        if not self.options.pack:
            found = self._columns or {}
            return rows, {name: each.finished(texts) for name, each in found.items()}, said
        rows = rows.packed(self.length)
        said.append(f"{path}: {count(texts, 'text')} in {count(len(rows.lengths), 'row')}")
        return rows, {}, said

    def _windows(self, ids: Array, starts: Array, lines: Array, said: list[str]) -> TokenRows:
        """A plain text in rows of one length; what is left of it is no row, where there are any."""
        length = min(self.length, len(ids))
        count, left = divmod(len(ids), length)
        if left:
            said.append(f"{self.file.path}: the last {left} tokens are no {length}: left out")
        edges = np.arange(count + 1) * length
        piece = np.searchsorted(starts, edges[:-1], "right") - 1
        learned = np.ones(count * length, np.bool_)
        learned[edges[:-1]] = False
        return TokenRows(ids[: count * length], learned, edges, edges[:-1], lines[piece])

    def _counted(self, texts: int, tokens: int) -> str:
        """`4 texts, 90 tokens`, or of a plain one the tokens."""
        return f"{tokens} tokens" if self._is_plain else f"{count(texts, 'text')}, {tokens} tokens"

    def _take_rest(self) -> None:
        """Take the other keys of some lines as columns; those that not all have are none."""
        if not self._rest:
            return
        found = self._columns
        if found is None:
            found = {name: GrowingColumn(name, self.categories) for name in self._rest[0]}
        found = {n: each for n, each in found.items() if all(n in row for row in self._rest)}
        lines = self._lines[-len(self._rest) :].tolist()
        for name, column in found.items():
            column.add([row[name] for row in self._rest], lines)
        self._columns = found
        self._rest.clear()

    def _require_room(self) -> None:
        """Refuse tokens that memory could not hold twice, as where rows are put together."""
        taken, free = 5 * len(self._ids), available_memory.free()
        if free is not None and taken > free:
            raise UsageError(
                f"{self.file.path}: its tokens take more than {format_bytes(2 * taken)} of memory, "
                f"there is room for {format_bytes(taken + free)}: give part of it"
            )

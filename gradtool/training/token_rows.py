"""Tokens of all examples one after the other, laid out in rows for a batch."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gradtool.training.sampler import Indices

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TokenRows:
    """Rows of tokens: `ids` [T] int32, and whether each `counts` as a label, [T] bool.

    A row goes from one of `starts` [N + 1] to the next, and holds documents, which begin at some
    of `documents` [D]; of each `lines` [D] has the line of its file.
    """

    ids: Array
    counts: Array
    starts: Array
    documents: Array
    lines: Array

    @cached_property
    def lengths(self) -> Array:
        """The tokens of each row, [N]."""
        return np.diff(self.starts)

    @property
    def digest(self) -> str:
        """A hash of all of it."""
        found = hashlib.sha256()
        for array in (self.ids, self.counts, self.starts, self.documents):
            found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()[:16]

    def line_of(self, token: int) -> int:
        """The line of the file that a token is from."""
        return int(self.lines[np.searchsorted(self.documents, token, "right") - 1])

    def laid(self, rows: Indices, width: int, ahead: int = 0) -> tuple[Array, Array]:
        """Where the tokens of some rows are, and which places have one: [rows, width] both.

        A place has the token that is so many `ahead`, within its row.
        """
        offsets = np.arange(ahead, width + ahead)
        inside = offsets < self.lengths[rows][:, None]
        return np.where(inside, self.starts[:-1][rows][:, None] + offsets, 0), inside

    def tokens(self, rows: Indices, width: int, fill: int) -> Array:
        """The tokens of rows, and `fill` behind them."""
        places, inside = self.laid(rows, width)
        return np.where(inside, self.ids[places], fill)

    def mask(self, rows: Indices, width: int) -> Array:
        """Which places of rows have a token."""
        return self.laid(rows, width)[1]

    def types(self, rows: Indices, width: int) -> Array:
        """One sentence a row, which is of type 0."""
        return np.zeros(self.laid(rows, width)[1].shape, np.int64)

    def positions(self, rows: Indices, width: int) -> Array:
        """The places of tokens in their documents, and 0 behind them."""
        places, inside = self.laid(rows, width)
        begins = self.documents[np.searchsorted(self.documents, places, "right") - 1]
        return np.where(inside, places - begins, 0)

    def numbers(self, rows: Indices, width: int) -> Array:
        """The documents of tokens, counted from 0 in each row, and 0 behind them."""
        places, inside = self.laid(rows, width)
        found = np.searchsorted(self.documents, places, "right")
        return np.where(inside, found - found[:, :1], 0)

    def labels(self, rows: Indices, width: int, ignored: int, ahead: int) -> Array:
        """The tokens so many `ahead` that count as labels, and elsewhere `ignored`."""
        places, inside = self.laid(rows, width, ahead)
        return np.where(inside & self.counts[places], self.ids[places], ignored)

    def pair(self, size: int) -> TokenRows:
        """One row of two documents of half the size each, of which the second is learned."""
        half = max(min(size, len(self.ids)) // 2, 1)
        ids = np.resize(self.ids, 2 * half)
        counts = np.arange(2 * half) > half
        return TokenRows(
            ids, counts, np.array([0, 2 * half]), np.array([0, half]), self.lines[:1].repeat(2)
        )

    def packed(self, width: int) -> TokenRows:
        """The same documents, several in a row of up to `width` tokens: best fit, longest first.

        Source: best-fit decreasing (Johnson 1974), as TRL packs.
        """
        rows: list[list[int]] = []
        rooms: dict[int, list[int]] = {}  # rows by what they have room for
        sizes: list[int] = []  # of the rooms, sorted
        for each in np.argsort(-self.lengths, kind="stable").tolist():
            size = int(self.lengths[each])
            at = bisect_left(sizes, size)
            if at < len(sizes):
                room = sizes[at]
                row = rooms[room].pop()
                if not rooms[room]:
                    del rooms[room], sizes[at]
                rows[row].append(each)
            else:
                room, row = width, len(rows)
                rows.append([each])
            if room - size not in rooms:
                insort(sizes, room - size)
            rooms.setdefault(room - size, []).append(row)
        return self._of(rows)

    def _of(self, rows: Sequence[Sequence[int]]) -> TokenRows:
        """Rows of some of the documents each."""
        order = np.array([each for row in rows for each in sorted(row)], np.int64)
        sizes = self.lengths[order]
        begins = np.concatenate(([0], np.cumsum(sizes)))
        places = np.repeat(self.starts[:-1][order] - begins[:-1], sizes) + np.arange(begins[-1])
        counted = np.cumsum([0, *map(len, rows)])
        return TokenRows(
            self.ids[places], self.counts[places], begins[counted], begins[:-1], self.lines[order]
        )

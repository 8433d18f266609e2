"""Columns of cells in the width of a terminal: shortened, wrapped and parted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from gradtool.text.names import shorten, wrapped

INDENT = 1  # cells before the first column
WIDE, TIGHT = 3, 2  # cells between columns
SHORTEST = 12  # cells that a name keeps, however narrow the terminal
LONGEST = 200  # cells of a name in any table; CSV, Markdown and JSON have all of it
WORD = 20  # cells that a word of a text keeps

Rows = Sequence[Sequence[str]]


Align = Literal["left", "right"]
Kind = Literal["name", "number", "text"]


@dataclass(frozen=True)
class Column:
    """A heading. Names may be shortened in the middle, numbers never.

    Text continues on further lines where a terminal is narrow; only a long word is shortened.
    """

    title: str
    align: Align = "left"
    kind: Kind = "text"

    @classmethod
    def numbers(cls, *titles: str) -> tuple[Column, ...]:
        """Columns of numbers."""
        return tuple(cls(title, "right", "number") for title in titles)

    @classmethod
    def names(cls, *titles: str) -> tuple[Column, ...]:
        """Columns of names."""
        return tuple(cls(title, kind="name") for title in titles)


@dataclass(frozen=True)
class Block:
    """Columns beside each other, the cells of their titles first."""

    columns: tuple[Column, ...]
    rows: Rows
    widths: tuple[int, ...]
    gap: int

    @property
    def width(self) -> int:
        """Cells from the first column to the last."""
        return sum(self.widths) + self.gap * (len(self.widths) - 1)

    def lines(self, number: int, ellipsis: str) -> Iterator[str]:
        """The lines of a row; titles stand at the bottom of theirs, other cells at the top."""
        cells = [
            _cell(*each, ellipsis, title=number == 0)
            for each in zip(self.rows[number], self.widths, self.columns, strict=True)
        ]
        if number == 0:
            most = max(map(len, cells))
            cells = [[*[""] * (most - len(lines)), *lines] for lines in cells]
        for parts in zip_longest(*cells, fillvalue=""):
            line = (" " * self.gap).join(
                _padded(*each) for each in zip(parts, self.widths, self.columns, strict=True)
            )
            yield " " * INDENT + line.rstrip()


def blocks(columns: tuple[Column, ...], rows: Rows, available: int) -> Iterator[Block]:
    """The columns beside each other; without room for all, some below the others.

    Names are shortened and text in the last column is wrapped, the widest first; then columns move
    together, then titles and other texts are wrapped.  Columns still too wide follow in further
    blocks, each of which begins with the first column.
    """
    begin, end = 1, len(columns)
    while True:
        block = _block(columns, rows, (0, *range(begin, end)), available)
        if INDENT + block.width > available and end > begin + 1:
            end -= 1
            continue
        yield block
        begin, end = end, len(columns)
        if begin >= end:
            return


def _block(every: Sequence[Column], cells: Rows, taken: Sequence[int], available: int) -> Block:
    """Some columns beside each other, as wide as there is room, or as narrow as they can be."""
    columns, rows = [every[i] for i in taken], [[row[i] for i in taken] for row in cells]
    for gap, wraps in ((WIDE, False), (TIGHT, False), (TIGHT, True)):
        room = available - INDENT - gap * (len(columns) - 1)
        widths = _widths(columns, rows, room, wraps=wraps)
        if sum(widths) <= room:
            break
    return Block(tuple(columns), rows, widths, gap)


def _widths(columns: Sequence[Column], rows: Rows, room: int, *, wraps: bool) -> tuple[int, ...]:
    """Cells of each column: the longest cell, less its possible shortening."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, cells)) for cells in zip(*rows, strict=True)]
    least = list(widths)
    for index, column in enumerate(columns):
        title, *cells = (row[index] for row in rows)
        if column.kind == "name":
            widths[index] = min(widths[index], LONGEST)
            least[index] = max(SHORTEST, cell_len(title))
        elif column.kind == "text" and (wraps or index == len(columns) - 1):
            least[index] = max(map(_longest_word, (title, *cells)))
            least[index] = min(least[index], WORD) if wraps else least[index]
        elif wraps:
            least[index] = max([_longest_word(title), *map(cell_len, cells)])
    while sum(widths) > room:
        spare = [index for index, width in enumerate(widths) if width > least[index]]
        if not spare:
            break
        widths[max(spare, key=widths.__getitem__)] -= 1
    return tuple(widths)


def _longest_word(text: str) -> int:
    """The least width of a text in cells; its continuation is indented by one."""
    from rich.cells import cell_len

    return max(map(cell_len, wrapped(text, 1)))


def _cell(cell: str, width: int, column: Column, ellipsis: str, *, title: bool) -> list[str]:
    """The lines of a cell: only a number may be longer than its column is wide."""
    if column.kind == "name":
        return [shorten(cell, width, ellipsis=ellipsis)]
    lines = wrapped(cell, width) if title or column.kind == "text" else [cell]
    if column.align == "right":
        lines = [line.strip() for line in lines]
    if column.kind == "number":
        return lines
    return [shorten(line, width, ellipsis=ellipsis) for line in lines]


def _padded(cell: str, width: int, column: Column) -> str:
    from rich.cells import cell_len

    blank = " " * (width - cell_len(cell))
    return blank + cell if column.align == "right" else cell + blank

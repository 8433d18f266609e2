"""A table as text cells, and the ways to write it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from csv import writer
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gradtool.text.names import Medium, escape, fit, shorten, wrapped

if TYPE_CHECKING:
    from rich.console import Console

Align = Literal["left", "right"]
Kind = Literal["name", "number", "text"]

INDENT = 1  # cells before the first column
GAP = 3  # cells between columns
SHORTEST = 12  # cells that a name keeps, however narrow the terminal
LONGEST = 200  # cells of a name in any table; CSV, Markdown and JSON have all of it


@dataclass(frozen=True)
class Column:
    """A heading. Names may be shortened in the middle; numbers and text never are.

    Text in the last column continues on further lines where a terminal is narrow.
    """

    title: str
    align: Align = "left"
    kind: Kind = "text"


@dataclass(frozen=True)
class Table:
    """Rows of raw text, one cell a column: escaping is left to whoever writes the table."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    footer: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} cells in a table of {len(self.columns)}")


def render(table: Table, console: Console) -> None:
    """Print the table: header, one rule, rows.

    Where it is wider than the console, names are shortened and text in the last column is wrapped,
    the widest first. What then still sticks out is left to the terminal to wrap.
    """
    from rich.text import Text

    encoding = console.encoding
    rule, ellipsis = fit("─", encoding), fit("…", encoding)
    titles = tuple(column.title for column in table.columns)
    rows = [[fit(escape(cell), encoding) for cell in row] for row in (titles, *table.rows)]
    widths = _widths(table.columns, rows, console.width)

    if table.title:
        console.print(Text(fit(escape(table.title), encoding), style="bold"))
    for number, row in enumerate(rows):
        first, *further = _wrapped(row, widths, table.columns)
        cells = (_cell(*each, ellipsis) for each in zip(first, widths, table.columns, strict=True))
        line = " " * INDENT + (" " * GAP).join(cells)
        console.print(Text(line.rstrip(), style="" if number else "bold"), soft_wrap=True)
        before = " " * (INDENT + sum(widths[:-1]) + GAP * (len(widths) - 1))
        for rest in further:
            console.print(Text(before + rest), soft_wrap=True)
        if number == 0:
            length = sum(widths) + GAP * (len(widths) - 1)
            console.print(Text(" " * INDENT + rule * length, style="dim"), soft_wrap=True)
    for part in table.footer.splitlines():
        for line in wrapped(fit(escape(part), encoding), console.width):
            console.print(Text(line, style="dim"), soft_wrap=True)


def markdown(table: Table) -> str:
    """The table in GitHub's Markdown, with its title above and its footer below."""
    rules = ("---:" if column.align == "right" else "---" for column in table.columns)
    lines = [
        _row(_escaped((column.title for column in table.columns), "markdown")),
        _row(rules),
        *(_row(_escaped(row, "markdown")) for row in table.rows),
    ]
    if table.title:
        lines[:0] = [f"**{escape(table.title, 'markdown')}**", ""]
    if table.footer:
        lines += ["", "  \n".join(_escaped(table.footer.splitlines(), "markdown"))]
    return "\n".join(lines) + "\n"


def html(table: Table) -> str:
    """The table as HTML, with its title as a caption and its footer below."""
    head = "".join(f"<th>{escape(column.title, 'html')}</th>" for column in table.columns)
    rows = "".join(
        "<tr>"
        + "".join(
            f'<td style="text-align: {column.align}">{escape(cell, "html")}</td>'
            for cell, column in zip(row, table.columns, strict=True)
        )
        + "</tr>\n"
        for row in table.rows
    )
    title = f"<caption>{escape(table.title, 'html')}</caption>\n" if table.title else ""
    below = "".join(f"<div>{escape(line, 'html')}</div>\n" for line in table.footer.splitlines())
    return f"<table>\n{title}<thead><tr>{head}</tr></thead>\n{rows}</table>\n{below}"


def facts(title: str, rows: Mapping[str, object]) -> str:
    """What an object is, as HTML: a row a fact, names escaped; what is None is left out."""
    cells = tuple((name, str(value)) for name, value in rows.items() if value is not None)
    return html(Table((Column("fact"), Column("value")), cells, title=title))


def csv(table: Table) -> str:
    """The header and the rows, comma-separated; a spreadsheet finds no formula among the names."""
    out = io.StringIO()
    rows = writer(out, lineterminator="\n")
    rows.writerow(_escaped((column.title for column in table.columns), "csv"))
    for row in table.rows:
        rows.writerow(
            escape(cell, "terminal" if column.kind == "number" else "csv")
            for cell, column in zip(row, table.columns, strict=True)
        )
    return out.getvalue()


def _widths(columns: tuple[Column, ...], rows: list[list[str]], available: int) -> list[int]:
    """Cells of each column: the longest cell, less what names and wrapped text have to give."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, cells)) for cells in zip(*rows, strict=True)]
    least = list(widths)
    for index, column in enumerate(columns):
        if column.kind == "name":
            widths[index] = min(widths[index], LONGEST)
            least[index] = max(SHORTEST, cell_len(rows[0][index]))
    if columns[-1].kind == "text":
        least[-1] = max(cell_len(line) for row in rows for line in wrapped(row[-1], 1))
    room = available - INDENT - GAP * (len(columns) - 1)
    while sum(widths) > room:
        spare = [index for index, width in enumerate(widths) if width > least[index]]
        if not spare:
            break
        widths[max(spare, key=widths.__getitem__)] -= 1
    return widths


def _wrapped(
    row: list[str], widths: list[int], columns: tuple[Column, ...]
) -> tuple[list[str], *tuple[str, ...]]:
    """The first line of a row, then what else there is of text in its last column."""
    if columns[-1].kind != "text":
        return (row,)
    first, *further = wrapped(row[-1], widths[-1])
    return ([*row[:-1], first], *further)


def _cell(cell: str, width: int, column: Column, ellipsis: str) -> str:
    """`cell` in `width` cells, or in more where it is no name and longer."""
    from rich.cells import cell_len

    if column.kind == "name":
        cell = shorten(cell, width, ellipsis=ellipsis)
    blank = " " * (width - cell_len(cell))
    return blank + cell if column.align == "right" else cell + blank


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(cells: Iterable[str], medium: Medium) -> Iterator[str]:
    return (escape(cell, medium) for cell in cells)

"""A table as text cells, and the ways to write it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from csv import writer
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradtool.text.layout import INDENT, Column, blocks
from gradtool.text.names import Medium, escape, fit, wrapped

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Table:
    """The `rows` of a table, one cell for each of `columns`, below its `title`, above its `footer`.

    The text is raw: escaping is left to whoever writes the table.
    """

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

    Where it is wider than the console, see `blocks`; numbers are never cut.
    """
    from rich.text import Text

    encoding = console.encoding
    rule, ellipsis = fit("─", encoding), fit("…", encoding)
    titles = tuple(column.title for column in table.columns)
    rows = [[fit(escape(cell), encoding) for cell in row] for row in (titles, *table.rows)]

    if table.title:
        for line in wrapped(fit(escape(table.title), encoding), console.width):
            console.print(Text(line, style="bold"), soft_wrap=True)
    for index, block in enumerate(blocks(table.columns, rows, console.width)):
        if index:
            console.print()
        for number in range(len(rows)):
            for line in block.lines(number, ellipsis):
                console.print(Text(line, style="" if number else "bold"), soft_wrap=True)
            if number == 0:
                line = " " * INDENT + rule * block.width
                console.print(Text(line, style="dim"), soft_wrap=True)
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
    """The facts of an object as HTML: a row a fact, names escaped; None is left out."""
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


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(cells: Iterable[str], medium: Medium) -> Iterator[str]:
    return (escape(cell, medium) for cell in cells)

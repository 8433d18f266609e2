"""What commands write: results on stdout, remarks on stderr, in characters the stream has."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from gradtool.reports.console import Color
    from gradtool.reports.table import Table


def say(ctx: click.Context, message: str) -> None:
    """A remark on stderr, unless --quiet."""
    if not (ctx.obj or {}).get("quiet"):
        _write_line(message, sys.stderr)


def print_line(text: str) -> None:
    """A line of a result; names in it cannot command the terminal."""
    _write_line(text, sys.stdout)


def print_json(document: dict[str, Any]) -> None:
    """A result for machines."""
    from gradtool.reports.text import json_text

    click.echo(json_text(document))


def print_table(ctx: click.Context, table: Table, form: str = "table") -> None:
    """A table of a result, as `table`, `csv` or `markdown`."""
    from gradtool.reports import table as tables

    if form == "table":
        from gradtool.reports.console import stdout_console

        tables.render(table, stdout_console(color(ctx)))
        return
    from gradtool.reports.text import fit

    text = tables.csv(table) if form == "csv" else tables.markdown(table)
    click.echo(fit(text, _encoding(sys.stdout)), nl=False)


def say_table(ctx: click.Context, table: Table) -> None:
    """A table that explains an error, on stderr."""
    from gradtool.reports.console import stderr_console
    from gradtool.reports.table import render

    render(table, stderr_console(color(ctx)))


def color(ctx: click.Context) -> Color:
    """The value of `--color`."""
    found: Color = (ctx.obj or {}).get("color", "auto")
    return found


def _write_line(text: str, stream: TextIO | None) -> None:
    """Write a line, on a terminal in as many as it takes."""
    from gradtool.reports.text import escape, fit, wrapped

    line = fit(escape(text), _encoding(stream))
    for part in wrapped(line, _width(stream)):
        click.echo(part, file=stream, err=stream is sys.stderr)


def _width(stream: TextIO | None) -> int:
    """Columns of the terminal that a stream is, else more than any line has."""
    from gradtool.reports.console import UNBOUNDED, is_terminal

    return shutil.get_terminal_size().columns if is_terminal(stream) else UNBOUNDED


def _encoding(stream: TextIO | None) -> str:
    return getattr(stream, "encoding", None) or "ascii"

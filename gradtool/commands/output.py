"""Output of commands: results on stdout, remarks on stderr, in characters the stream has."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from gradtool.reports.console import Color
    from gradtool.reports.progress import Bar
    from gradtool.text.table import Table


@dataclass(frozen=True)
class Reporter:
    """Output of a command; a quiet one leaves remarks out, a verbose one adds details."""

    color: Color = "auto"
    quiet: bool = False
    verbose: int = 0
    _said: set[str] = field(default_factory=set, compare=False, repr=False)

    def say(self, message: str) -> None:
        """A remark, which a command makes once."""
        if not self.quiet and message not in self._said:
            self._said.add(message)
            with suppress(OSError):  # of a terminal that is closed: what is done goes on
                write_line(message, sys.stderr)

    def line(self, text: str) -> None:
        """A line of a result; names in it cannot command the terminal."""
        write_line(text, sys.stdout)

    def remark(self, text: str, form: str = "table") -> None:
        """A line of a result for people: beside a result for machines it is a remark."""
        if form == "table":
            self.line(text)
        else:
            self.say(text)

    def json(self, document: Mapping[str, object]) -> None:
        """A result for machines, and the version of its schema."""
        from gradtool.reports.live import away
        from gradtool.text.names import json_text

        with away():
            click.echo(json_text({"schema_version": 1, **document}))

    def table(self, table: Table, form: str = "table") -> None:
        """A table of a result, as `table`, `csv` or `markdown`."""
        from gradtool.text import table as tables

        if form == "table":
            from gradtool.reports.console import stdout_console
            from gradtool.reports.live import away

            with away():
                tables.render(table, stdout_console(self.color))
            return
        self.text(tables.csv(table) if form == "csv" else tables.markdown(table))

    def tables(self, found: Iterable[Table | str]) -> None:
        """Tables of a result for people, each below an empty line; a text is a line."""
        for each in found:
            self.line("")
            if isinstance(each, str):
                self.line(each)
            else:
                self.table(each)

    def text(self, text: str) -> None:
        """A result as a text of its own, with its line ends."""
        from gradtool.reports.live import away
        from gradtool.text.names import fit

        with away():
            click.echo(fit(text, _encoding(sys.stdout)), nl=False)

    def explain(self, table: Table) -> None:
        """A table that explains an error, on stderr."""
        from gradtool.reports.console import stderr_console
        from gradtool.reports.live import away
        from gradtool.text.table import render

        with away():
            render(table, stderr_console(self.color))

    def bar(self, description: str, total: int | None = None) -> AbstractContextManager[Bar]:
        """Progress bar of a task, on terminals."""
        from gradtool.reports.progress import bar

        return bar(description, total, color=self.color, quiet=self.quiet)

    def draws(self) -> bool:
        """Whether stdout has the characters of timelines."""
        from gradtool.reports.console import draws, stdout_console

        return draws(stdout_console(self.color))


SILENT = Reporter(quiet=True)


def write_line(text: str, stream: TextIO | None) -> None:
    """Write a line, on a terminal in as many as it takes."""
    from gradtool.reports.console import columns
    from gradtool.reports.live import away
    from gradtool.text.names import escape, fit, wrapped

    line = fit(escape(text), _encoding(stream))
    with away():
        for part in wrapped(line, columns(stream)):
            click.echo(part, file=stream, err=stream is sys.stderr)


def _encoding(stream: TextIO | None) -> str:
    return getattr(stream, "encoding", None) or "ascii"

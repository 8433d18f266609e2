"""The command `gradtool check`."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from gradtool.commands.call import Call, Choice, as_command
from gradtool.commands.options import switch, together
from gradtool.commands.output import Reporter
from gradtool.errors import UsageError

if TYPE_CHECKING:
    from gradtool.commands.output import Reporter
    from gradtool.reports.gate import GateRun
    from gradtool.text.table import Table


FORMATS = ("table", "json", "markdown", "github", "junit", "sarif")
ALONE = ("json", "junit", "sarif")  # on stdout: a document, nothing else
SUMMARY = "GITHUB_STEP_SUMMARY"


def parse_outputs(given: Sequence[str]) -> dict[str, str]:
    """By format where to write it, `-` for stdout.

    Raises:
        UsageError: there is no such format, a file cannot be written, or two outputs collide.
    """
    from gradtool.io import atomic
    from gradtool.text.words import suggest

    found: dict[str, str] = {}
    for text in given:
        form, _, path = text.partition(":")
        if form not in FORMATS:
            hint = suggest(form, FORMATS) or f"; there are {', '.join(FORMATS)}"
            raise UsageError(f"--output {text}: there is no format {form!r}{hint}")
        if form in found:
            raise UsageError(f"the format {form} is given twice")
        found[form] = path or "-"
    printed = [form for form, path in found.items() if path == "-"]
    if len(printed) > 1 and set(printed) & set(ALONE):
        raise UsageError(
            f"{printed[0]} and {printed[1]} both go to stdout: name a file, as --output FORMAT:PATH"
        )
    files = {f"--output {form}": path for form, path in found.items() if path != "-"}
    atomic.require_targets(files, force=True)
    return found


def tell(reporter: Reporter, gate: GateRun, outputs: Mapping[str, str]) -> None:
    """Write the verdicts in every format, the table on stdout unless something else goes there."""
    from gradtool.io import atomic
    from gradtool.reports.gate import RENDERERS

    files = []
    for form, path in outputs.items():
        if path == "-" and form == "table":
            continue
        text = _table_text(gate) if form == "table" else RENDERERS[form](gate)
        if path == "-":
            reporter.text(text)
        else:
            files.append(atomic.Output(atomic.target(path, force=True), _filler(text)))
    if outputs.get("table", "") == "-" or "-" not in outputs.values():
        _show(gate, reporter.table, reporter.line)
    atomic.write(files)
    _summarise(reporter, gate)


def _show(gate: GateRun, table: Callable[[Table], None], line: Callable[[str], None]) -> None:
    """The table of verdicts, and below it why each failure is one."""
    from gradtool.check.sentences import explanation, headline
    from gradtool.reports.gate.tables import grown_table, verdict_table

    table(verdict_table(gate.judged))
    for judged in gate.failed:
        line("")
        for sentence in explanation(judged):
            line(f"{judged.case.name}: {sentence}")
        grown = grown_table(judged)
        if grown is not None:
            table(grown)
    line("")
    line(headline(gate))


def _table_text(gate: GateRun) -> str:
    """The same as text, each table as wide as it needs to be."""
    from rich.console import Console

    from gradtool.reports.console import HEIGHT, UNBOUNDED
    from gradtool.text.names import escape
    from gradtool.text.table import render

    stream = io.StringIO()
    console = Console(file=stream, width=UNBOUNDED, height=HEIGHT, color_system=None)
    _show(gate, lambda table: render(table, console), lambda line: print(escape(line), file=stream))
    return stream.getvalue()


def _filler(text: str) -> Callable[[BinaryIO], object]:
    data = text.encode("utf-8", "backslashreplace")
    return lambda file: file.write(data)


def _summarise(reporter: Reporter, gate: GateRun) -> None:
    """Append the Markdown to the summary of a GitHub job, where there is one."""
    path = os.environ.get(SUMMARY)
    if not path:
        return
    from gradtool.io import contained
    from gradtool.reports.gate import RENDERERS

    try:
        with contained.appended(Path(path), own=False) as file:
            file.write(f"{RENDERERS['markdown'](gate)}\n".encode("utf-8", "backslashreplace"))
    except OSError as error:
        reporter.say(f"{SUMMARY}: {path}: cannot be written: {error.strerror or error}")


_FLAGS = together(
    switch("--update", "Record what the cases take now as their baselines."),
    switch("--only-improved", "With --update: only of cases that take less than before."),
    switch("--allow-new", "Let cases without a baseline pass."),
    switch("--fail-on-stale", "Fail where less is taken than the baseline says."),
    click.option("--fail-on", multiple=True, metavar="RULE",
                 help="What fails, as in peak:1%+1MiB; replaces the rules of the configuration."),
    click.option("--base", metavar="REF",
                 help="Compare with the models of another git revision instead of baselines."),
    switch("--run", "Run a step of each case on the CPU, and measure it."),
    click.option("--list", "listing", is_flag=True, help="List the cases; plan nothing."),
    switch("--exit-zero", "Exit 0 where cases fail, but not on errors."),
    click.option("--output", "outputs", multiple=True, metavar="FORMAT[:PATH]",
                 help="Write table, json, markdown, github, junit or sarif; several at once."),
    click.option("--format", "form", type=Choice(FORMATS),
                 help="Print this alone: the same as --output FORMAT.  [default: table]"),
    click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="N",
                 help="Plan N cases at once.  [default: as many as there are processors]"),
    switch("--no-cache", "Plan everything anew."),
)  # fmt: skip


@as_command("check")
@click.argument("names", metavar="[CASE]...", nargs=-1)
@_FLAGS
def command(call: Call, /, *, names: tuple[str, ...], **flags: Any) -> int:  # fmt: skip
    """Fail if the training step of a model in this repository takes more memory than before.

    CASES are those of [tool.gradtool] in pyproject.toml, or of gradtool.toml: their names, or
    globs; all of them by default.
    """
    from gradtool.check.cases import chosen
    from gradtool.commands import checking
    from gradtool.commands.configured import require

    config = require(call)
    cases = chosen(config.cases, names)
    printed = () if flags["form"] is None else (flags["form"],)
    outputs = parse_outputs((*flags["outputs"], *printed))
    if flags["listing"]:
        _list(call.reporter, config.baseline, cases, outputs)
        return 0
    gate = checking.judged(call.reporter, config, cases, flags)
    tell(call.reporter, gate, outputs)
    return checking.exit_code(gate, zero=flags["exit_zero"])


def _list(reporter: Reporter, folder: Any, cases: Any, outputs: dict[str, str]) -> None:
    from gradtool.check.baselines import is_recorded
    from gradtool.reports.gate.gate_json import cases_json
    from gradtool.reports.gate.tables import case_table

    forms = list(outputs) or ["table"]
    if forms not in (["table"], ["json"], ["markdown"]) or set(outputs.values()) - {"-"}:
        raise UsageError("--list is printed as table, json or markdown")
    recorded = [(case, is_recorded(folder, case)) for case in cases]
    if forms == ["json"]:
        reporter.json(cases_json(recorded))
        return
    reporter.table(case_table(recorded), forms[0])

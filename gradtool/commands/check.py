"""The command `gradtool check`."""

from __future__ import annotations

from typing import Any

import click

from gradtool.commands.call import Call, Choice, as_command
from gradtool.commands.options import together
from gradtool.commands.output import Reporter
from gradtool.commands.render_verdicts import FORMATS
from gradtool.errors import UsageError

_FLAGS = together(
    click.option("--update", is_flag=True,
                 help="Record what the cases take now as their baselines."),
    click.option("--only-improved", is_flag=True,
                 help="With --update: only of cases that take less than before."),
    click.option("--allow-new", is_flag=True, help="Let cases without a baseline pass."),
    click.option("--fail-on-stale", is_flag=True,
                 help="Fail where less is taken than the baseline says."),
    click.option("--fail-on", multiple=True, metavar="RULE",
                 help="What fails, as in peak:1%+1MiB; replaces the rules of the configuration."),
    click.option("--base", metavar="REF",
                 help="Compare with the models of another git revision instead of baselines."),
    click.option("--run", is_flag=True,
                 help="Run a step of each case on the CPU, and measure it."),
    click.option("--list", "listing", is_flag=True, help="List the cases; plan nothing."),
    click.option("--exit-zero", is_flag=True, help="Exit 0 where cases fail, but not on errors."),
    click.option("--output", "outputs", multiple=True, metavar="FORMAT[:PATH]",
                 help="Write table, json, markdown, github, junit or sarif; several at once."),
    click.option("--format", "form", type=Choice(FORMATS),
                 help="Print this alone: the same as --output FORMAT.  [default: table]"),
    click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="N",
                 help="Plan N cases at once.  [default: as many as there are processors]"),
    click.option("--no-cache", is_flag=True, help="Plan everything anew."),
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
    from gradtool.commands import checking, render_verdicts
    from gradtool.commands.configured import require

    config = require(call)
    cases = chosen(config.cases, names)
    printed = () if flags["form"] is None else (flags["form"],)
    outputs = render_verdicts.parse_outputs((*flags["outputs"], *printed))
    if flags["listing"]:
        _list(call.reporter, config.baseline, cases, outputs)
        return 0
    gate = checking.judged(call.reporter, config, cases, flags)
    render_verdicts.tell(call.reporter, gate, outputs)
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

"""The command `gradtool init`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradtool.commands.call import Call, as_command
from gradtool.commands.discovery import Sizes
from gradtool.commands.options import PATH, set_option, switch

if TYPE_CHECKING:
    from gradtool.check.cases import Case
    from gradtool.commands.output import Reporter
    from gradtool.commands.starting import Started
    from gradtool.comparison.metrics import Metrics


@as_command("init")
@click.argument("models", metavar="[MODEL]...", nargs=-1, type=PATH)
@click.option("--plan", default="mirror", show_default=True, metavar="NAME|FILE",
              help="The plan to check: keep, reorder, mirror, sqrt, segments, min-cut, optimal, or "
                   "a file that recompute wrote.")  # fmt: skip
@click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE",
              help="Give a size to a symbol; those that nobody gives are 1.")  # fmt: skip
@set_option
@switch("--no-baseline", "Write the configuration only.")
@switch("--force", "Replace the configuration that is there.")
def command(
    call: Call,
    /,
    *,
    models: tuple[str, ...],
    plan: str,
    dims: tuple[str, ...],
    values: tuple[str, ...],
    no_baseline: bool,
    force: bool,
) -> None:  # fmt: skip
    """Write a configuration for gradtool check, and the first baseline.

    There is a case for each MODEL, by default for each .onnx file in this folder and below.  It
    goes into pyproject.toml if there is one, else into gradtool.toml.
    """
    from gradtool.commands import starting

    path = starting.target(call.config, force=force)
    if not (no_baseline or call.allow_outside):
        starting.require_baselines(path)
    started = starting.start(
        call.reporter, path, models or starting.found(), plan, Sizes(dims, values=values),
        allow_outside=call.allow_outside,
    )  # fmt: skip
    text = starting.text_of(path, started)
    recorded = [] if no_baseline else _recordable(call.reporter, started)
    _record(path, recorded)
    starting.write(path, text)
    _tell(call.reporter, path, started, recorded)


def _recordable(reporter: Reporter, started: Started) -> list[tuple[Case, Metrics]]:
    """The cases that a baseline can be written of: their plans do not depend on the clock."""
    for case, metrics in started.cases:
        if metrics.cut_short:
            reporter.say(f"{case.name}: no baseline: its plan was cut short by time")
    return [pair for pair in started.cases if not pair[1].cut_short]


def _record(path: Path, recorded: list[tuple[Case, Metrics]]) -> None:
    from gradtool.check import baselines
    from gradtool.check.config.settings import BASELINE

    baselines.write(path.parent / BASELINE, recorded)


def _tell(
    reporter: Reporter, path: Path, started: Started, recorded: list[tuple[Case, Metrics]]
) -> None:
    from gradtool.check.config.settings import BASELINE
    from gradtool.reports.gate.tables import verdict_table
    from gradtool.text.words import count

    with_baseline = f", {count(len(recorded), 'baseline')} in {BASELINE}" if recorded else ""
    reporter.table(verdict_table(started.judged))
    reporter.line(f"wrote {path}: {count(len(started.cases), 'case')}{with_baseline}")
    reporter.say(f"next: git add {path}{f' {BASELINE}' if recorded else ''}; then gradtool check")

"""The command `gradtool init`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradtool.commands.options import PATH
from gradtool.commands.output import print_line, print_table, say

if TYPE_CHECKING:
    from gradtool.check.cases import Case
    from gradtool.check.metrics import Metrics
    from gradtool.commands.starting import Started


@click.command("init")
@click.argument("models", metavar="[MODEL]...", nargs=-1, type=PATH)
@click.option(
    "--plan",
    default="mirror",
    show_default=True,
    metavar="NAME|FILE",
    help="The plan to check: keep, none, mirror, sqrt, segments, min-cut, optimal, or a "
    "file that recompute wrote.",
)
@click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=SIZE",
    help="Give a size to a symbol; those that nobody gives are 1.",
)
@click.option("--no-baseline", is_flag=True, help="Write the configuration only.")
@click.option("--force", is_flag=True, help="Replace the configuration that is there.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    models: tuple[str, ...],
    plan: str,
    dims: tuple[str, ...],
    no_baseline: bool,
    force: bool,
) -> None:  # fmt: skip
    """Write a configuration for gradtool check, and the first baseline.

    There is a case for each MODEL, by default for each .onnx file in this folder and below.  It
    goes into pyproject.toml if there is one, else into gradtool.toml.
    """
    from gradtool.commands import starting

    path = starting.target(ctx, force=force)
    started = starting.start(ctx, path, models or starting.found(), plan, dims)
    text = starting.text_of(path, started)
    recorded = [] if no_baseline else _recordable(ctx, started)
    _record(path, recorded)
    starting.write(path, text)
    _tell(ctx, path, started, recorded)


def _recordable(ctx: click.Context, started: Started) -> list[tuple[Case, Metrics]]:
    """The cases that a baseline can be written of: their plans do not depend on the clock."""
    for case, metrics in started.cases:
        if metrics.cut_short:
            say(ctx, f"{case.name}: no baseline: its plan was cut short by time")
    return [pair for pair in started.cases if not pair[1].cut_short]


def _record(path: Path, recorded: list[tuple[Case, Metrics]]) -> None:
    from gradtool.check import baselines
    from gradtool.config.settings import BASELINE

    baselines.write(path.parent / BASELINE, recorded)


def _tell(
    ctx: click.Context, path: Path, started: Started, recorded: list[tuple[Case, Metrics]]
) -> None:
    from gradtool.config.settings import BASELINE
    from gradtool.reports.gate.tables import verdict_table
    from gradtool.text import count

    with_baseline = f", {count(len(recorded), 'baseline')} in {BASELINE}" if recorded else ""
    print_table(ctx, verdict_table(started.judged))
    print_line(f"wrote {path}: {count(len(started.cases), 'case')}{with_baseline}")
    say(ctx, f"next: git add {path}{f' {BASELINE}' if recorded else ''}; then gradtool check")

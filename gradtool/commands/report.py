"""The command `gradtool report`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from gradtool.commands.models import discover, open_model, training_of
from gradtool.commands.options import PATH, grad_options, size_options, table_format_option
from gradtool.commands.output import color, print_json, print_line, print_table, say
from gradtool.errors import GradtoolError, UsageError

if TYPE_CHECKING:
    from gradtool.planning.plan import Plan

SCHEMA_VERSION = 1
WIDTH = 78  # columns of the timeline


@dataclass(frozen=True)
class Planned:
    """A model and its plan; `dims` are all sizes used, `assumed` those that nobody gave."""

    name: str
    plan: Plan
    dims: dict[str, int]
    assumed: dict[str, int]


@click.command("report")
@click.argument("models", metavar="[MODEL]...", nargs=-1, type=PATH)
@click.option(
    "--by",
    type=click.Choice(["region", "tensor", "op", "phase"]),
    help="Show one table of what is held at the peak.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=12,
    show_default=True,
    metavar="N",
    help="Show the N largest tensors.",
)
@size_options
@grad_options
@table_format_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    models: tuple[str, ...],
    by: str | None,
    top: int,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    batch: int | None,
    form: str,
    **options: Any,
) -> None:  # fmt: skip
    """Show the memory that a training step of MODEL is planned to take, and what holds it.

    Several models are shown side by side. A forward model is differentiated first. Nothing is
    written, and no weights are read.
    """
    from gradtool.reports.memory import plans_table

    if by and len(models) > 1:
        raise UsageError("--by is for one model")
    if models.count("-") > 1:
        raise UsageError("standard input can be read once: give - once")
    found = [
        _planned(ctx, source, sizes=(dims, shapes, batch), options=options)
        for source in models or (discover(ctx),)
    ]
    if form == "json":
        documents = [_json(planned) for planned in found]
        print_json({"schema_version": SCHEMA_VERSION, "models": documents})
        return
    if len(found) > 1:
        names = [planned.name for planned in found]
        print_table(ctx, plans_table([planned.plan for planned in found], names), form)
    else:
        _show(ctx, found[0], by, top, form)
    for planned in found:
        _say_unsized(ctx, planned, form)


def _planned(
    ctx: click.Context, source: str, *, sizes: tuple[Any, Any, Any], options: dict[str, Any]
) -> Planned:
    from gradtool import api, io

    loaded = open_model(ctx, source, *sizes)
    training = training_of(ctx, loaded, options)
    assumed = dict.fromkeys(io.symbols(training), 1)
    said = ", ".join(f"{name}={size}" for name, size in assumed.items())
    if assumed:
        say(ctx, f"assumed {said} (give --dim {next(iter(assumed))}=N)")
    try:
        plan = api.plan(training, dims=assumed)
    except GradtoolError as error:
        if assumed:
            error.args = (f"{error} (with {said} assumed: give --dim)",)
        raise
    given = dict(loaded.meta.get("gradtool.dims", {}))
    return Planned(source, plan, {**given, **assumed}, assumed)


def _show(ctx: click.Context, planned: Planned, by: str | None, top: int, form: str) -> None:
    from gradtool.reports import breakdown, memory
    from gradtool.reports.console import draws, stdout_console

    plan = planned.plan
    if by or form == "csv":
        print_table(ctx, breakdown.by(plan, by or "region", top), form)
        return
    regions = memory.by_region(plan)
    regions = replace(regions, footer=regions.footer.removesuffix(memory.FOOTER))
    tensors = memory.alive_at_peak(plan, top)
    if form == "markdown":
        regions = replace(regions, title=memory.summary(plan))
    else:
        print_line(memory.summary(plan))
        print_line("")
    print_table(ctx, regions, form)
    print_line("")
    if form == "table":
        drawn = draws(stdout_console(color(ctx)))
        for line in memory.timeline(plan, WIDTH, unicode=drawn).splitlines():
            print_line(f" {line}")
        print_line("")
    print_table(ctx, tensors, form)


def _say_unsized(ctx: click.Context, planned: Planned, form: str) -> None:
    from gradtool.reports.breakdown import unsized

    counts = unsized(planned.plan.program)
    if not counts:
        return
    listed = ", ".join(f"{op} ({count})" for op, count in counts.items())
    line = f"{planned.name}: not counted, their sizes depend on data: results of {listed}"
    if form == "table":
        print_line(line)
    else:
        say(ctx, line)


def _json(planned: Planned) -> dict[str, Any]:
    from gradtool.reports.breakdown import unsized
    from gradtool.reports.memory import plan_json

    document = plan_json(planned.plan, planned.name, planned.dims)
    del document["schema_version"]
    document["assumed"] = planned.assumed
    document["unsized"] = unsized(planned.plan.program)
    return document

"""The command `gradtool report`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from gradtool.commands import drawing, learned, on_ranks, plan_names
from gradtool.commands.call import Call, Choice, as_command
from gradtool.commands.discovery import Sizes
from gradtool.commands.options import (
    PATH,
    file_flag,
    grad_options,
    kernel_options,
    size_options,
    switch,
    table_format_option,
    top_option,
)

if TYPE_CHECKING:
    from gradtool.commands.output import Reporter
    from gradtool.commands.workloads import Opened
    from gradtool.reports.memory import ModelRecord, ReportDocument
    from gradtool.workloads.savings import Saving

WIDTH = 78  # columns of the timeline


@as_command("report")
@click.argument("models", metavar="[MODEL|RUN]...", nargs=-1, type=PATH)
@click.option("--by", type=Choice(["region", "tensor", "op", "phase", "module"]),
              help="Show one table of what is held at the peak.")  # fmt: skip
@top_option("tensors")
@file_flag("--html", "FILE", "Write a page to look at: memory over the step, what is alive at "
           "each, every tensor; of a RUN its curves.")  # fmt: skip
@file_flag("--svg", "FILE.svg", "Write a picture: what is alive over the step, by plan.")
@file_flag("--trace", "FILE.json", "Write a trace for Perfetto: a slice a node, and memory by "
           "region.")  # fmt: skip
@click.option("--plan", multiple=True, callback=plan_names.plan_names, metavar=plan_names.METAVAR,
              help=f"With --html, --svg and --trace: a plan beside keeping everything, or the one "
                   f"in a file.  [default: {', '.join(drawing.USUAL)}]")  # fmt: skip
@switch("--frontier", "With --html: add what each budget of memory costs in work, which takes "
        "longer.")  # fmt: skip
@switch("--force", "Overwrite the files to be written.")
@on_ranks.options
@kernel_options
@size_options
@grad_options
@table_format_option
def command(
    call: Call,
    /,
    *,
    models: tuple[str, ...],
    by: str | None,
    top: int,
    form: str,
    **options: Any,
) -> None:  # fmt: skip
    """Show the memory that a training step of MODEL is planned to take, and what holds it.

    Several models are shown side by side. A forward model is differentiated first. Nothing is
    written but what --html, --svg and --trace name, and no weights are read.

    RUN is a folder that gradtool train wrote: the curves of one training, or of several.
    """
    from gradtool.commands.workloads import open_workloads
    from gradtool.reports.memory import plans_table

    sizes = Sizes.of(options)
    if options["ranks"] is not None:
        on_ranks.report(call, models, sizes, options, form)
        return
    if any(map(learned.is_run, models)):
        learned.report(call, models, options, form)
        return
    drawn = drawing.asked(options)
    opened = open_workloads(call, models, sizes=sizes, options=options, trains=True)
    if drawn:
        drawing.write(call.reporter, opened[0], form, options)
        return
    if form == "json":
        document: ReportDocument = {"models": [_json(call.reporter, each) for each in opened]}
        call.reporter.json(document)
        return
    if len(opened) > 1:
        names = [each.name for each in opened]
        call.reporter.table(plans_table([each.work.kept for each in opened], names), form)
    else:
        _show(call.reporter, opened[0], by, top, form)
    for each in opened:
        _say_unsized(call.reporter, each, form)


def _savings(reporter: Reporter, opened: Opened) -> tuple[Saving, ...]:
    """Savings of residuals in a model, before anything is planned."""
    from gradtool.workloads.savings import savings

    with reporter.bar(f"weighing what {opened.name} keeps"):
        kernels = opened.work.kernels
        return savings(opened.training, dims=opened.assumed, kernels=kernels)


def _show(reporter: Reporter, opened: Opened, by: str | None, top: int, form: str) -> None:
    from gradtool.reports import breakdown, holdings, memory, savings

    plan = opened.work.kept
    if by or form == "csv":
        reporter.table(breakdown.by(plan, by or "region", top), form)
        return
    regions = memory.by_region(plan)
    regions = replace(regions, footer=regions.footer.removesuffix(memory.footer([plan])))
    tensors = memory.alive_at_peak(plan, top)
    if form == "markdown":
        regions = replace(regions, title=memory.summary(plan))
    else:
        reporter.line(memory.summary(plan))
        held = holdings.held_line(opened.training, plan)
        if held is not None:
            reporter.line(held)
        reporter.line("")
    reporter.table(regions, form)
    reporter.line("")
    if form == "table":
        for line in memory.timeline(plan, WIDTH, unicode=reporter.draws()).splitlines():
            reporter.line(f" {line}")
        reporter.line("")
    saved = _savings(reporter, opened)
    if savings.moved(saved):
        reporter.table(savings.table(saved), form)
        reporter.line("")
    reporter.table(tensors, form)


def _say_unsized(reporter: Reporter, opened: Opened, form: str) -> None:
    from gradtool.planning.breakdown import unsized

    counts = unsized(opened.work.kept.program)
    if not counts:
        return
    listed = ", ".join(f"{op} ({count})" for op, count in counts.items())
    line = f"{opened.name}: not counted, their sizes depend on data: results of {listed}"
    reporter.remark(line, form)


def _json(reporter: Reporter, opened: Opened) -> ModelRecord:
    from gradtool.planning.breakdown import unsized
    from gradtool.reports import savings
    from gradtool.reports.memory import plan_json

    return {
        **plan_json(opened.work.kept, opened.name, opened.dims),
        "assumed": dict(opened.assumed),
        "unsized": unsized(opened.work.kept.program),
        "savings": savings.rows_json(_savings(reporter, opened)),
    }

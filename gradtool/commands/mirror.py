"""The command `gradtool mirror`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from gradtool.commands.call import Call, as_command
from gradtool.commands.discovery import Sizes, meant
from gradtool.commands.options import (
    PATH,
    grad_options,
    kernel_options,
    plan_table_options,
    size_options,
    switch,
    table_format_option,
    write_options,
)
from gradtool.commands.plans import Plans, plan
from gradtool.errors import UsageError

if TYPE_CHECKING:
    from gradtool.commands.output import Reporter
    from gradtool.commands.workloads import Opened
    from gradtool.reports.plans import Row
    from gradtool.workloads.plans import Strategy


@as_command("mirror")
@click.argument("models", metavar="[MODEL]...", nargs=-1, type=PATH)
@switch("--report", "Print the plans side by side; write nothing.")
@click.option("--policy", default="mirror", show_default=True, metavar="NAME|FILE",
              help="What may run twice: mirror, dots, cheap, or a TOML file.")  # fmt: skip
@click.option("--keep", multiple=True, metavar="GLOB", help="Never run these nodes twice.")
@click.option("--drop", multiple=True, metavar="GLOB", help="Let these nodes run twice, whatever "
                  "the policy.")  # fmt: skip
@click.option("--checkpoints", multiple=True, metavar="NAMES|@FILE",
              help="With --report: a row for segments between these values.")  # fmt: skip
@click.option("--explain", metavar="TENSOR", help="Say why a value is kept, and what it costs.")
@plan_table_options
@kernel_options
@write_options
@size_options
@grad_options
@table_format_option
def command(
    call: Call,
    /,
    *,
    models: tuple[str, ...],
    report: bool,
    policy: str,
    keep: tuple[str, ...],
    drop: tuple[str, ...],
    checkpoints: tuple[str, ...],
    explain: str | None,
    **options: Any,
) -> None:  # fmt: skip
    """Drop activations that are cheap to compute, and compute them again in the backward pass.

    Writes MODEL.mirror.onnx, or with --report prints what each plan would take. Only what lowers
    the peak is applied: the result never takes more than keeping everything.
    """
    from functools import partial

    from gradtool.commands import plans, writing
    from gradtool.commands.workloads import open_workloads
    from gradtool.planning.pareto.requirements import lacking
    from gradtool.planning.recompute.policy import policy_named
    from gradtool.workloads import strategies
    from gradtool.workloads.names import KEEP, LIGHT, REORDER

    if len(models) > 1 and not report:
        raise UsageError("several models are for --report")
    chosen = partial(strategies.mirror, policy=policy_named(policy), keep=keep, drop=drop)
    asked = meant(call, models, Sizes.of(options), options)
    planned = asked.options
    if not report and explain is None:
        options["force"] = writing.require_target(asked.source, "mirror", options)
        planned = writing.planned_for(planned)
    opened = open_workloads(call, asked.sources, sizes=asked.sizes, options=planned)
    if explain is not None:
        plans.explain(call.reporter, opened[0], chosen, explain, options["form"])
        return
    if not report:
        writing.write(call.reporter, opened[0], chosen, "mirror", options)
        return
    listed: dict[str, Strategy] = {
        KEEP: strategies.keep,
        REORDER: strategies.reorder,
        "mirror": chosen,
        "sqrt": strategies.sqrt,
    }
    if not (said := lacking()):
        listed |= {LIGHT: strategies.light, "optimal": strategies.optimal}
    if checkpoints:
        names = plans.checkpoint_names(checkpoints)
        listed["checkpoints"] = partial(strategies.checkpoints, names=names)
    _side_by_side(call.reporter, opened, listed, options)
    if said:
        call.reporter.remark(f"no row for optimal: {said}", options["form"])


def _side_by_side(
    reporter: Reporter,
    opened: Sequence[Opened],
    strategies: Mapping[str, Strategy],
    options: Mapping[str, Any],
) -> None:
    """Print the plans of each model, or with `--by` the values of each at its peak."""
    found = [plan(reporter, each, strategies.values()) for each in opened]
    rows = [_rows(reporter, each, strategies, options["memory"]) for each in found]
    if options["form"] == "json":
        _print_json(reporter, found, rows, options["by"])
    elif options["by"] != "plan":
        _print_parts(reporter, rows, options)
    else:
        from gradtool.reports.plans import nothing_saved

        whose = "{}: {}" if len(opened) > 1 else "{1}"
        notes = []
        for each, of_model in zip(found, rows, strict=True):
            nothing, verbose = nothing_saved(of_model, each.opened.assumed), reporter.verbose > 0
            told = [nothing] if nothing and not verbose else each.notes(verbose=verbose)
            notes += [
                whose.format(each.opened.name, t) for t in (*told, *_formulas(reporter, each))
            ]
        _print_plans(reporter, rows, notes, options)


def _rows(
    reporter: Reporter, plans: Plans, strategies: Mapping[str, Strategy], memory: int | None
) -> list[Row]:
    batches = {} if memory is None else _batches(reporter, plans.opened, strategies, memory)
    return [replace(each, max_batch=batches.get(each.name)) for each in plans.rows]


def _formulas(reporter: Reporter, plans: Plans) -> Iterator[str]:
    """By plan, its peak in the open sizes; nothing if all are given."""
    opened = plans.opened
    if not opened.assumed:
        return
    from gradtool.reports.plans import TITLES, formula_text, no_formula
    from gradtool.workloads import formulas
    from gradtool.workloads.plans import form_of

    symbols = tuple(opened.assumed)
    if len(symbols) > formulas.MOST_OPEN:
        most = formulas.MOST_OPEN
        yield f"no formulas: {len(symbols)} sizes are open, more than {most} (give --dim NAME=N)"
        return
    with reporter.bar("looking for formulas", total=len(plans.found)) as shown:
        for planned in plans.found:
            made = formulas.peak_formula(form_of(opened.work, planned), planned.schedule, symbols)
            shown.advance()
            title = TITLES.get(planned.name, planned.name)
            yield f"{title}: {formula_text(made) if made else no_formula(symbols)}"


def _print_json(
    reporter: Reporter, found: Sequence[Plans], rows: Sequence[Sequence[Row]], by: str
) -> None:
    """One document of a model, or a list of several."""
    from gradtool.reports import plans as reports

    documents = [
        reports.plans_json(of_model, each.opened.dims, each.notes(verbose=True), by=by)
        for each, of_model in zip(found, rows, strict=True)
    ]
    several = reports.ModelsDocument(models=documents)
    reporter.json(several if len(documents) > 1 else documents[0])


def _print_plans(
    reporter: Reporter,
    rows: Sequence[Sequence[Row]],
    notes: Sequence[str],
    options: Mapping[str, Any],
) -> None:
    from gradtool.reports import plans as reports

    form = options["form"]
    shown = rows if form == "csv" or reporter.verbose else [reports.folded(each) for each in rows]
    table = reports.plans_table(shown, options["memory"])
    lines = [*notes, *reports.closing_lines(rows, unicode=reporter.draws())]
    if form == "markdown":
        table = replace(table, footer="\n".join(lines))
    if form == "table":
        reporter.line("")
    reporter.table(table, form)
    if form == "table":
        for line in lines:
            reporter.line(line)


def _print_parts(
    reporter: Reporter, rows: Sequence[Sequence[Row]], options: Mapping[str, Any]
) -> None:
    from gradtool.reports import breakdown

    for of_model in rows:
        plans = [each.plan for each in of_model]
        table = breakdown.side_by_side(plans, options["by"], options["top"])
        if len(rows) > 1:
            table = replace(table, title=of_model[0].model)
        reporter.table(table, options["form"])


def _batches(
    reporter: Reporter, opened: Opened, strategies: Mapping[str, Strategy], memory: int
) -> dict[str, int]:
    """By plan, the largest batch that fits in `memory`; nothing where there is none to find."""
    from gradtool.workloads.budgets.batches import largest_batches

    grown = opened.grown()
    if grown is None:
        reporter.say(opened.no_batch)
        return {}
    with reporter.bar("looking for the largest batch", total=len(strategies)) as shown:
        return largest_batches(grown, strategies, memory, done=shown.advance, point=shown.approach)

"""The plans of one or several models side by side: `mirror --report`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from gradtool.commands.output import color, print_json, print_line, print_table, say
from gradtool.commands.planning import SCHEMA_VERSION, plan, row

if TYPE_CHECKING:
    from gradtool.commands.workloads import Opened
    from gradtool.plans import Planned, Strategy
    from gradtool.reports.plans import Row


def report(
    ctx: click.Context,
    opened: Sequence[Opened],
    strategies: Mapping[str, Strategy],
    options: Mapping[str, Any],
) -> None:
    """Print the plans of each model, or with `--by` what each plan holds at its peak."""
    found = [plan(ctx, each, strategies.values()) for each in opened]
    rows = [
        _rows(ctx, each, of_model, strategies, options["memory"])
        for each, of_model in zip(opened, found, strict=True)
    ]
    if options["form"] == "json":
        _print_json(opened, rows, found, options["by"])
    elif options["by"] != "plan":
        _print_parts(ctx, rows, options)
    else:
        whose = "{}: {}" if len(opened) > 1 else "{1}"
        notes = [
            whose.format(each.name, line)
            for each, of_model in zip(opened, found, strict=True)
            for line in (*_notes(of_model), *_formulas(ctx, each, of_model))
        ]
        _print_plans(ctx, rows, notes, options)


def _rows(
    ctx: click.Context,
    opened: Opened,
    found: Sequence[Planned],
    strategies: Mapping[str, Strategy],
    memory: int | None,
) -> list[Row]:
    batches = _batches(ctx, opened, strategies, memory)
    return [replace(row(opened, each), max_batch=batches.get(each.name)) for each in found]


def _notes(found: Sequence[Planned]) -> list[str]:
    return [note for planned in found for note in planned.notes]


def _formulas(ctx: click.Context, opened: Opened, found: Sequence[Planned]) -> Iterator[str]:
    """By plan, its peak in the sizes that are open; nothing if all are given."""
    if not opened.assumed:
        return
    from gradtool import formulas
    from gradtool.reports import formula
    from gradtool.reports.plans import TITLES
    from gradtool.reports.progress import bar

    symbols = tuple(opened.assumed)
    with bar("looking for formulas", total=len(found), color=color(ctx)) as shown:
        for planned in found:
            made = formulas.peak_formula(opened.work, planned.schedule, symbols)
            shown.advance()
            title = TITLES.get(planned.name, planned.name)
            yield f"{title}: {formula.text(made) if made else formula.none(symbols)}"


def _print_json(
    opened: Sequence[Opened],
    rows: Sequence[Sequence[Row]],
    found: Sequence[Sequence[Planned]],
    by: str,
) -> None:
    """One document of a model, or a list of several."""
    from gradtool.reports import plans as reports

    documents = [
        reports.plans_json(of_model, each.dims, _notes(planned), by=by)
        for each, of_model, planned in zip(opened, rows, found, strict=True)
    ]
    shown = documents[0] if len(documents) == 1 else {"models": documents}
    print_json({"schema_version": SCHEMA_VERSION, **shown})


def _print_plans(
    ctx: click.Context,
    rows: Sequence[Sequence[Row]],
    notes: Sequence[str],
    options: Mapping[str, Any],
) -> None:
    from gradtool.reports import plans as reports
    from gradtool.reports.console import draws, stdout_console

    form = options["form"]
    table = reports.plans_table(rows, options["memory"])
    closing = reports.closing_lines(rows, unicode=draws(stdout_console(color(ctx))))
    lines = [*notes, *closing]
    if form == "markdown":
        table = replace(table, footer="\n".join(lines))
    if form == "table":
        print_line("")
    print_table(ctx, table, form)
    if form == "table":
        for line in lines:
            print_line(line)


def _print_parts(
    ctx: click.Context, rows: Sequence[Sequence[Row]], options: Mapping[str, Any]
) -> None:
    from gradtool.reports import breakdown

    for of_model in rows:
        plans = [each.plan for each in of_model]
        table = breakdown.side_by_side(plans, options["by"], options["top"])
        if len(rows) > 1:
            table = replace(table, title=of_model[0].model)
        print_table(ctx, table, options["form"])


def _batches(
    ctx: click.Context, opened: Opened, strategies: Mapping[str, Strategy], memory: int | None
) -> dict[str, int]:
    """By plan, the largest batch that fits in `memory`; nothing if nobody asked."""
    if memory is None:
        return {}
    from gradtool.budgets.batches import largest_batches
    from gradtool.reports.progress import bar

    grown = opened.grown()
    if grown is None:
        why = "standard input is read once" if opened.name == "-" else "its batch is fixed"
        say(ctx, f"{opened.name}: no largest batch to find: {why}")
        return {}
    with bar("looking for the largest batch", total=len(strategies), color=color(ctx)) as shown:
        return largest_batches(grown, strategies, memory, done=shown.advance)

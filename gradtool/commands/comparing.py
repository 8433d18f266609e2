"""The plans of one or several models side by side: `mirror --report`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gradtool.commands.plans import Plans, plan

if TYPE_CHECKING:
    from gradtool.commands.output import Reporter
    from gradtool.commands.workloads import Opened
    from gradtool.reports.plans import Row
    from gradtool.workloads.plans import Strategy


def report(
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
    from gradtool.reports import formula
    from gradtool.reports.plans import TITLES
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
            yield f"{title}: {formula.text(made) if made else formula.none(symbols)}"


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

"""What `mirror` and `recompute` do with a strategy: write its model, or report it beside others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from gradtool.commands.output import color, print_json, print_line, print_table, say

if TYPE_CHECKING:
    from gradtool.commands.workloads import Opened
    from gradtool.plans import Planned, Strategy, Workload
    from gradtool.reports.plans import Row
    from gradtool.reports.table import Table

SCHEMA_VERSION = 1


def write(
    ctx: click.Context, opened: Opened, strategy: Strategy, kind: str, options: Mapping[str, Any]
) -> None:
    """Write the model of a plan beside MODEL, as `MODEL.<kind>.onnx`, and say what it saves."""
    from gradtool import api, plans
    from gradtool.exec.ort_options import how_to_load
    from gradtool.io import atomic

    target = options["output"] or _target(opened.name, kind)
    if target != "-":
        atomic.target(target, force=options["force"])
    found = _plan(ctx, opened, {kind: strategy})[0]
    model = plans.write(opened.work, found)
    path, size = api.save(
        model,
        target,
        force=options["force"],
        external_data=options["external_data"],
        functions=options["functions"],
        barrier=options["barrier"],
        say=lambda line: say(ctx, line),
    )
    rows = [_row(opened, planned) for planned in (_kept(opened), found)]
    _show_written(ctx, opened, rows, found, (str(path), size), options["form"])
    hint = "" if options["barrier"] else how_to_load(model)
    if hint:
        say(ctx, hint)


def _target(source: str, kind: str) -> str:
    if source == "-":
        return "-"
    suffix = ".onnxtxt" if source.endswith(".onnxtxt") else ".onnx"
    return f"{source.removesuffix(suffix).removesuffix('.grad')}.{kind}{suffix}"


def _show_written(
    ctx: click.Context,
    opened: Opened,
    rows: Sequence[Row],
    found: Planned,
    written: tuple[str, int],
    form: str,
) -> None:
    from gradtool.reports import plans as reports
    from gradtool.reports.units import format_bytes

    path, size = written
    table = reports.plans_table([rows])
    if path == "-":
        for note in found.notes:
            say(ctx, note)
        return
    if form == "json":
        document = reports.plans_json(rows, opened.dims, found.notes)
        print_json({"schema_version": SCHEMA_VERSION, **document, "written": path, "bytes": size})
        return
    print_table(ctx, table, form)
    for line in (*found.notes, f"wrote {path} ({format_bytes(size)})"):
        print_line(line) if form == "table" else say(ctx, line)


def report(
    ctx: click.Context,
    opened: Sequence[Opened],
    strategies: Mapping[str, Strategy],
    options: Mapping[str, Any],
) -> None:
    """Print the plans of each model side by side, or with `--by` what each holds at its peak."""
    from gradtool.reports import plans as reports

    found = [_plan(ctx, each, strategies) for each in opened]
    batches = [_batches(ctx, each, strategies, options["memory"]) for each in opened]
    rows = [
        [replace(_row(each, planned), max_batch=batch.get(planned.name)) for planned in of_model]
        for each, of_model, batch in zip(opened, found, batches, strict=True)
    ]
    form = options["form"]
    if form == "json":
        documents = [
            reports.plans_json(of_model, each.dims, _notes(planned))
            for each, of_model, planned in zip(opened, rows, found, strict=True)
        ]
        print_json({"schema_version": SCHEMA_VERSION, "models": documents})
        return
    if options["by"] != "plan":
        _print_parts(ctx, opened, rows, options)
        return
    notes = [
        *(note for of_model in found for note in _notes(of_model)),
        *(line for each, of_model in zip(opened, found, strict=True)
          for line in _formulas(ctx, each, of_model)),
    ]  # fmt: skip
    _print(ctx, rows, notes, options)


def _notes(found: Sequence[Planned]) -> list[str]:
    return [note for planned in found for note in planned.notes]


def _formulas(ctx: click.Context, opened: Opened, found: Sequence[Planned]) -> list[str]:
    """By plan, its peak in the sizes that are open; nothing if all are given."""
    if not opened.assumed:
        return []
    from gradtool import formulas
    from gradtool.reports import formula
    from gradtool.reports.plans import TITLES
    from gradtool.reports.progress import bar

    lines = []
    with bar("looking for formulas", total=len(found), color=color(ctx)) as shown:
        for planned in found:
            made = formulas.peak_formula(opened.work, planned.schedule, tuple(opened.assumed))
            title = TITLES.get(planned.name, planned.name)
            lines.append(f"{title}: {formula.text(made) if made else 'no formula of degree 2'}")
            shown.advance()
    return lines


def _print(
    ctx: click.Context,
    rows: Sequence[Sequence[Row]],
    notes: Sequence[str],
    options: Mapping[str, Any],
) -> None:
    from gradtool.reports import plans as reports
    from gradtool.reports.console import draws, stdout_console

    form = options["form"]
    if form == "table":
        print_line("")
    table = reports.plans_table(rows, options["memory"])
    if form == "csv":
        print_table(ctx, table, form)
        return
    lines = _closing(rows, unicode=draws(stdout_console(color(ctx))))
    if form == "markdown":
        print_table(ctx, replace(table, footer="\n".join([*notes, *lines]).strip()), form)
        return
    print_table(ctx, table, form)
    for line in (*notes, *lines):
        print_line(line)


def _closing(rows: Sequence[Sequence[Row]], *, unicode: bool) -> list[str]:
    """The lines below the table; of several models only what is counted."""
    from gradtool.reports import plans as reports
    from gradtool.reports.memory import FOOTER

    if len(rows) > 1:
        return [FOOTER]
    *lines, footer = reports.closing_lines(rows[0], unicode=unicode)
    unknown = reports.unknown_line(rows[0])
    return [*lines, *([unknown] if unknown else []), footer]


def _print_parts(
    ctx: click.Context,
    opened: Sequence[Opened],
    rows: Sequence[Sequence[Row]],
    options: Mapping[str, Any],
) -> None:
    from gradtool.reports import breakdown

    for each, of_model in zip(opened, rows, strict=True):
        plans = [row.plan for row in of_model]
        table: Table = breakdown.side_by_side(plans, options["by"], options["top"])
        if len(rows) > 1:
            table = replace(table, title=each.name)
        print_table(ctx, table, options["form"])


def explain(
    ctx: click.Context, opened: Opened, strategy: Strategy, tensor: str, form: str
) -> None:
    """Say why a value is kept or computed again, and what computing it again would cost."""
    from gradtool.planning.explain import explain as facts_of
    from gradtool.reports import explanation

    found = _plan(ctx, opened, {"mirror": strategy})[0]
    facts = facts_of(
        opened.work.program, tensor, decision=found.decision, schedule=found.schedule
    )
    if form == "json":
        print_json(explanation.document(facts))
        return
    for line in explanation.lines(facts):
        print_line(line)


def _plan(
    ctx: click.Context, opened: Opened, strategies: Mapping[str, Strategy]
) -> list[Planned]:
    from gradtool.reports.progress import bar

    found = []
    with bar(f"planning {opened.name}", total=len(strategies), color=color(ctx)) as shown:
        for strategy in strategies.values():
            found.append(strategy(opened.work))
            shown.advance()
    return found


def _kept(opened: Opened) -> Planned:
    from gradtool import strategies

    return strategies.keep(opened.work)


def _row(opened: Opened, found: Planned) -> Row:
    from gradtool import plans
    from gradtool.reports.plans import Row

    kept = opened.work.kept
    extra = plans.extra_flops(found.plan, kept)
    return Row(opened.name, found.plan, plans.total_flops(kept.program), extra)


def _batches(
    ctx: click.Context, opened: Opened, strategies: Mapping[str, Strategy], memory: int | None
) -> dict[str, int]:
    """By plan, the largest batch that fits in `memory`; nothing if nobody asked."""
    if memory is None:
        return {}
    from gradtool import plans
    from gradtool.reports.progress import bar

    grown = opened.grown()
    if grown is None:
        say(ctx, f"{opened.name}: its batch is fixed: no largest batch to find")
        return {}
    found: dict[str, int] = {}
    with bar("looking for the largest batch", color=color(ctx)):
        for name, strategy in strategies.items():
            found[name] = plans.largest_batch(_fitting(grown, strategy, memory))
    return found


def _fitting(
    grown: Callable[[int], Workload], strategy: Strategy, memory: int
) -> Callable[[int], bool]:
    """Whether a batch, planned anew, fits in so many bytes."""
    return lambda size: strategy(grown(size)).plan.peak <= memory

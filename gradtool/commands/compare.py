"""The command `gradtool compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gradtool.commands.call import Call, Choice, as_command
from gradtool.commands.options import (
    PATH,
    grad_options,
    kernel_options,
    size_options,
    table_format_option,
)
from gradtool.errors import UsageError

if TYPE_CHECKING:
    from gradtool.commands.output import Reporter
    from gradtool.comparison import Comparison, Part


@as_command("compare")
@click.argument("sources", metavar="BEFORE [AFTER]", nargs=-1, type=PATH)
@click.option(
    "--plan",
    "plans",
    multiple=True,
    metavar="NAME|FILE",
    help="How to plan the models: once for both, or twice; a name is keep, reorder, mirror, "
    "sqrt, segments, min-cut or optimal.  [default: keep]",
)
@click.option("--model", metavar="MODEL", type=PATH, help="The model that plans in files are of.")
@click.option(
    "--by",
    type=Choice(["region", "operator", "tensor", "node"]),
    help="Show one table: where bytes of the peak moved, or which nodes run again.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=12,
    show_default=True,
    metavar="N",
    help="Show the N largest movements.",
)
@kernel_options
@size_options
@grad_options
@table_format_option
def command(
    call: Call,
    /,
    *,
    sources: tuple[str, ...],
    by: Part | None,
    top: int,
    form: str,
    **options: Any,
) -> None:  # fmt: skip
    """Show what moved between two models, two plans or two reports.

    BEFORE and AFTER are models, plans (recompute -o FILE.json), reports (--format json) or
    baselines of gradtool check.  One model is compared with itself under two plans.
    """
    from gradtool import comparison
    from gradtool.commands.comparands import both_sides
    from gradtool.reports.comparison import CompareDocument, comparison_json

    before, now = both_sides(call, sources, options)
    pairs = comparison.pairs(before, now)
    found = [comparison.compare(*pair) for pair in pairs]
    for sides, matched in zip((before, now), zip(*pairs, strict=True), strict=True):
        for name in comparison.alone(sides, matched):
            call.reporter.say(
                f"{name}: only {'before' if sides is before else 'now'}, not compared"
            )
    if form == "json":
        call.reporter.json(CompareDocument(comparisons=[*map(comparison_json, found)]))
        return
    for number, each in enumerate(found):
        if number:
            call.reporter.line("")
        _show(call.reporter, each, by, top, form)


def _show(reporter: Reporter, found: Comparison, by: Part | None, top: int, form: str) -> None:
    from gradtool.reports import comparison as reports

    if by is not None and by not in found.parts:
        raise UsageError(f"--by {by}: {'; '.join(found.unknown) or 'neither side knows it'}")
    if by is not None:
        reporter.table(reports.part_table(found, by, top), form)
        return
    if form == "csv":
        reporter.table(reports.totals_table(found), form)
        return
    for number, table in enumerate(reports.tables(found, top)):
        if number:
            reporter.line("")
        reporter.table(table, form)
    reporter.line("")
    for line in reports.closing_lines(found):
        reporter.line(line)

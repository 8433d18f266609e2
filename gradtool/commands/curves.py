"""What budgets cost, and what batches fit: `recompute --frontier` and `--max-batch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from gradtool.commands.output import color, print_json, print_line, print_table, say
from gradtool.commands.planning import SCHEMA_VERSION
from gradtool.errors import UsageError

if TYPE_CHECKING:
    from gradtool.commands.workloads import Opened

BATCHED = ("keep", "mirror", "sqrt", "optimal")


def frontier(ctx: click.Context, opened: Opened, options: Mapping[str, Any]) -> None:
    """Print the least extra work of budgets from the least to that of keeping everything."""
    from dataclasses import replace

    from gradtool.budgets.frontier import frontier as frontier_of
    from gradtool.budgets.limits import Budget
    from gradtool.budgets.search import probing
    from gradtool.commands.budgeting import asked
    from gradtool.reports import frontier as reports
    from gradtool.reports.progress import bar

    work = opened.work
    with bar(f"planning {opened.name}", color=color(ctx)):
        search = replace(asked(options).search()(work), effort=probing(work))
        found = frontier_of(work, options["points"], search)
    state = Budget(optimizer=opened.options["optimizer"]).state(work)
    form = options["form"]
    if form == "json":
        document = reports.frontier_json(found, work.kept, opened.name, opened.dims, state)
        print_json({"schema_version": SCHEMA_VERSION, **document})
        return
    print_table(ctx, reports.frontier_table(found, work.kept, state), form)
    if form == "table":
        for line in reports.plot(found, state):
            print_line(line)


def max_batch(ctx: click.Context, opened: Opened, options: Mapping[str, Any]) -> None:
    """Print the largest batch that fits into a memory, by plan."""
    from gradtool.budgets.batches import largest_batches
    from gradtool.reports import batches as reports
    from gradtool.reports.progress import bar
    from gradtool.reports.units import parse_bytes
    from gradtool.strategies import STRATEGIES

    memory = parse_bytes(options["memory"])
    grown = opened.grown()
    if grown is None:
        why = "standard input is read once" if opened.name == "-" else "its batch is fixed"
        raise UsageError(f"{opened.name}: no largest batch to find: {why}")
    chosen = {name: STRATEGIES[name] for name in BATCHED}
    with bar("looking for the largest batch", total=len(chosen), color=color(ctx)) as shown:
        found = largest_batches(
            grown, chosen, memory, optimizer=opened.options["optimizer"], done=shown.advance
        )
    if options["form"] == "json":
        print_json({"schema_version": SCHEMA_VERSION, "model": opened.name,
                    "memory_bytes": memory, "optimizer": options["optimizer"],
                    "max_batch": found})  # fmt: skip
        return
    print_table(ctx, reports.batches_table(found, memory), options["form"])
    if options["optimizer"] != "none":
        say(ctx, f"the state of {options['optimizer']} is counted")


SHOWN = {"frontier": frontier, "max_batch": max_batch}

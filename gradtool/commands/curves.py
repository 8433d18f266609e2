"""Frontier of budgets, and the largest batches: `recompute --frontier` and `--max-batch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gradtool.errors import UsageError

if TYPE_CHECKING:
    from gradtool.commands.output import Reporter
    from gradtool.commands.workloads import Opened

BATCHED = ("keep", "mirror", "sqrt", "optimal")


def frontier(reporter: Reporter, opened: Opened, options: Mapping[str, Any]) -> None:
    """Print the least extra work of budgets from the least to that of keeping everything."""
    from gradtool.commands.budgeting import asked
    from gradtool.reports import frontier as reports
    from gradtool.workloads.budgets.frontier import frontier as frontier_of
    from gradtool.workloads.budgets.limits import Budget
    from gradtool.workloads.loops import scope

    work = opened.work
    with reporter.bar(f"planning {opened.name}", total=1) as shown:
        work.listener.point = shown.reach
        search = asked(options).search()(work)
        found = frontier_of(work, options["points"], search)
    state = Budget(optimizer=opened.counted).state(work)
    form = options["form"]
    if form == "json":
        document = reports.frontier_json(found, work.kept, opened.name, opened.dims, state)
        reporter.json(document)
        return
    reporter.table(
        reports.frontier_table(found, work.kept, state, verbose=reporter.verbose > 0), form
    )
    if form == "table":
        for line in reports.plot(found, state):
            reporter.line(line)
    for line in scope(work):
        reporter.remark(line, form)


def max_batch(reporter: Reporter, opened: Opened, options: Mapping[str, Any]) -> None:
    """Print the largest batch that fits into a memory, by plan."""
    from gradtool.reports import batches as reports
    from gradtool.text.units import parse_bytes
    from gradtool.workloads.budgets.batches import largest_batches
    from gradtool.workloads.strategies import STRATEGIES

    memory = parse_bytes(options["memory"])
    grown = opened.grown()
    if grown is None:
        raise UsageError(opened.no_batch)
    chosen = {name: STRATEGIES[name] for name in BATCHED}
    with reporter.bar("looking for the largest batch", total=len(chosen)) as shown:
        found = largest_batches(
            grown,
            chosen,
            memory,
            optimizer=opened.counted,
            done=shown.advance,
            point=shown.approach,
        )
    if options["form"] == "json":
        document: reports.BatchesDocument = {
            "model": opened.name, "memory_bytes": memory, "kernels": opened.work.kernels,
            "optimizer": options["optimizer"], "max_batch": found,
        }  # fmt: skip
        reporter.json(document)
        return
    reporter.table(reports.batches_table(found, memory), options["form"])
    if options["optimizer"] != "none":
        reporter.say(f"the state of {options['optimizer']} is counted")


SHOWN = {"frontier": frontier, "max_batch": max_batch}

"""The command `gradtool recompute`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gradtool.commands import budgeting, threads
from gradtool.commands.call import Call, as_command
from gradtool.commands.discovery import Sizes, meant
from gradtool.commands.options import (
    flags,
    kernel_options,
    model_argument,
    size_options,
    table_format_option,
    write_options,
)
from gradtool.errors import UsageError
from gradtool.workloads.grad_options import GradOptions

if TYPE_CHECKING:
    from gradtool.commands.output import Reporter
    from gradtool.commands.workloads import Opened

BATCHED = ("keep", "mirror", "sqrt", "optimal")


@as_command("recompute")
@model_argument
@budgeting.budget_options
@threads.option
@kernel_options
@write_options
@size_options
@flags(GradOptions, without=["optimizer"])
@table_format_option
def command(
    call: Call,
    /,
    *,
    model: str | None,
    **options: Any,
) -> None:  # fmt: skip
    """Compute parts of the forward pass again in the backward pass, to fit into less memory.

    Writes MODEL.recompute.onnx, or with -o FILE.json the plan alone.
    """
    from time import perf_counter

    from gradtool.commands import writing
    from gradtool.commands.workloads import open_workloads
    from gradtool.planning.pareto import requirements

    began = perf_counter()
    goal = budgeting.goal_of(options)
    if goal in SHOWN:
        requirements.require()
    else:
        budgeting.asked({**options, "optimizer": "none"}).plans()
    asked = meant(call, [model], Sizes.of(options), options)
    planned = asked.options
    if goal not in SHOWN:
        options["force"] = writing.require_target(asked.source, "recompute", options)
        planned = writing.planned_for(planned)
    (opened,) = open_workloads(call, asked.sources, sizes=asked.sizes, options=planned)
    if goal == "max_batch":
        _require_open(opened, options["dims"], options["shapes"])
    chosen = budgeting.within_limit(
        {**opened.options, "optimizer": opened.counted}, perf_counter() - began
    )
    if goal in SHOWN:
        SHOWN[goal](call.reporter, opened, {**options, "time_limit": chosen["time_limit"]})
    else:
        writing.write(call.reporter, opened, budgeting.asked(chosen).plans(), "recompute", options)


def _require_open(opened: Opened, dims: Sequence[str], shapes: Sequence[str]) -> None:
    """Refuse flags that fix the batch of --max-batch."""
    varied = opened.batch
    for each in dims:
        if each.partition("=")[0] == varied:
            raise UsageError(f"--max-batch looks for {varied}: leave out --dim {each}")
    if shapes and varied in opened.dims and varied not in opened.assumed:
        listed = " ".join(f"--shape {each}" for each in shapes)
        raise UsageError(f"--max-batch looks for {varied}: leave out {listed}")


def frontier(reporter: Reporter, opened: Opened, options: Mapping[str, Any]) -> None:
    """Print the least extra work of budgets from the least to that of keeping everything."""
    from gradtool.commands.budgeting import asked
    from gradtool.reports.frontier import frontier_json, frontier_table, plot
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
        document = frontier_json(found, work.kept, opened.name, opened.dims, state)
        reporter.json(document)
        return
    reporter.table(frontier_table(found, work.kept, state, verbose=reporter.verbose > 0), form)
    if form == "table":
        for line in plot(found, state):
            reporter.line(line)
    for line in scope(work):
        reporter.remark(line, form)


def max_batch(reporter: Reporter, opened: Opened, options: Mapping[str, Any]) -> None:
    """Print the largest batch that fits into a memory, by plan."""
    from gradtool.reports.frontier import BatchesDocument, batches_table
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
        document: BatchesDocument = {
            "model": opened.name, "memory_bytes": memory, "kernels": opened.work.kernels,
            "optimizer": options["optimizer"], "max_batch": found,
        }  # fmt: skip
        reporter.json(document)
        return
    reporter.table(batches_table(found, memory), options["form"])
    if options["optimizer"] != "none":
        reporter.say(f"the state of {options['optimizer']} is counted")


SHOWN = {"frontier": frontier, "max_batch": max_batch}

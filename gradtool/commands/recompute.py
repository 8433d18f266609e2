"""The command `gradtool recompute`."""

from __future__ import annotations

from collections.abc import Sequence
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
    from gradtool.commands.workloads import Opened


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

    from gradtool.commands import curves, writing
    from gradtool.commands.workloads import open_workloads
    from gradtool.planning.pareto import requirements

    began = perf_counter()
    goal = budgeting.goal_of(options)
    if goal in curves.SHOWN:
        requirements.require()
    else:
        budgeting.asked({**options, "optimizer": "none"}).plans()
    asked = meant(call, [model], Sizes.of(options), options)
    planned = asked.options
    if goal not in curves.SHOWN:
        options["force"] = writing.require_target(asked.source, "recompute", options)
        planned = writing.planned_for(planned)
    (opened,) = open_workloads(call, asked.sources, sizes=asked.sizes, options=planned)
    if goal == "max_batch":
        _require_open(opened, options["dims"], options["shapes"])
    chosen = budgeting.within_limit(
        {**opened.options, "optimizer": opened.counted}, perf_counter() - began
    )
    if goal in curves.SHOWN:
        curves.SHOWN[goal](call.reporter, opened, {**options, "time_limit": chosen["time_limit"]})
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

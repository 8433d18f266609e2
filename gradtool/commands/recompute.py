"""The command `gradtool recompute`."""

from __future__ import annotations

from typing import Any

import click

from gradtool.commands import budgeting, threads
from gradtool.commands.discovery import meant
from gradtool.commands.options import (
    grad_options,
    model_argument,
    size_options,
    table_format_option,
    write_options,
)


@click.command("recompute")
@model_argument
@click.option(
    "--checkpoints",
    multiple=True,
    metavar="NAMES|@FILE",
    help="Keep these values only, and compute again what lies between them.",
)
@click.option(
    "--strategy",
    type=click.Choice(["none", "mirror", "sqrt", "segments", "min-cut", "optimal"]),
    help="What to compute again; none: only the order of the steps changes; min-cut, optimal: what "
    "saves most for the work, by a quick or a thorough search.",
)
@budgeting.budget_options
@threads.option
@write_options
@size_options
@grad_options
@table_format_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    model: str | None,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    batch: int | None,
    **options: Any,
) -> None:  # fmt: skip
    """Compute parts of the forward pass again in the backward pass, to fit into less memory.

    Writes MODEL.recompute.onnx, or with -o FILE.json the plan alone.
    """
    from time import perf_counter

    from gradtool.commands import curves, writing
    from gradtool.commands.workloads import open_workloads

    began = perf_counter()
    goal = budgeting.goal_of(options)
    if goal not in curves.SHOWN:
        budgeting.asked(options).plans()
    asked = meant(ctx, [model], (dims, shapes, batch), options)
    if goal not in curves.SHOWN:
        writing.require_target(asked.source, "recompute", options)
    (opened,) = open_workloads(ctx, asked.sources, sizes=asked.sizes, options=asked.options)
    chosen = budgeting.within_limit(opened.options, perf_counter() - began)
    if goal in curves.SHOWN:
        curves.SHOWN[goal](ctx, opened, {**options, "seconds": chosen["seconds"]})
    else:
        writing.write(ctx, opened, budgeting.asked(chosen).plans(), "recompute", options)

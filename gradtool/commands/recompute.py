"""The command `gradtool recompute`."""

from __future__ import annotations

from typing import Any

import click

from gradtool.commands import budgeting
from gradtool.commands.models import discover
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
    from gradtool.commands import curves, writing
    from gradtool.commands.workloads import open_workloads

    goal, source = budgeting.goal_of(options), model
    chosen = None if goal in curves.SHOWN else budgeting.asked(options).plans()
    if source is None:
        source = discover(ctx)
    if chosen is not None:
        writing.require_target(source, "recompute", options)
    (opened,) = open_workloads(ctx, [source], sizes=(dims, shapes, batch), options=options)
    if chosen is None:
        curves.SHOWN[goal](ctx, opened, options)
    else:
        writing.write(ctx, opened, chosen, "recompute", options)

"""The command `gradtool recompute`."""

from __future__ import annotations

from typing import Any

import click

from gradtool.commands.models import discover
from gradtool.commands.options import (
    grad_options,
    model_argument,
    size_options,
    table_format_option,
    write_options,
)
from gradtool.errors import UsageError


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
    type=click.Choice(["none", "mirror", "sqrt", "segments"]),
    help="What to compute again; none: only the order of the steps changes.",
)
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
    checkpoints: tuple[str, ...],
    strategy: str | None,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    batch: int | None,
    **options: Any,
) -> None:  # fmt: skip
    """Compute parts of the forward pass again in the backward pass, segment by segment.

    Writes MODEL.recompute.onnx.
    """
    from functools import partial

    from gradtool import strategies
    from gradtool.commands import writing
    from gradtool.commands.planning import checkpoint_names
    from gradtool.commands.workloads import open_workloads

    if bool(checkpoints) == (strategy is not None):
        raise UsageError("say what to compute again: --checkpoints NAMES, or --strategy NAME")
    chosen = (
        partial(strategies.checkpoints, names=checkpoint_names(checkpoints))
        if strategy is None
        else strategies.STRATEGIES[strategy]
    )
    source = model if model is not None else discover(ctx)
    writing.require_target(source, "recompute", options)
    (opened,) = open_workloads(ctx, [source], sizes=(dims, shapes, batch), options=options)
    writing.write(ctx, opened, chosen, "recompute", options)

"""gradtool grad"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from gradtool.commands.options import (
    differentiate,
    discover,
    format_option,
    grad_options,
    open_model,
    remember,
    say,
    size_options,
)

if TYPE_CHECKING:
    from gradtool.passes.backward import Offenders
    from gradtool.passes.training import TrainingGraph


@click.command("grad")
@click.argument("model", required=False)
@click.option("-o", "--output", metavar="FILE", help="Where to write; default MODEL.grad.onnx; - is stdout.")
@click.option("--force", is_flag=True, help="Overwrite the output.")
@click.option("--external-data", type=click.Choice(["auto", "always", "never"]), default="auto",
              show_default=True, help="Write weights to a file of their own.")  # fmt: skip
@size_options
@grad_options
@format_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    model: str | None,
    output: str | None,
    force: bool,  # noqa: FBT001
    external_data: Literal["auto", "always", "never"],
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    batch: int | None,
    form: str,
    **options: Any,
) -> None:
    """Write MODEL's training graph: forward, loss and gradients, in standard ONNX operators.

    MODEL is an ONNX file, or - for standard input.
    """
    from gradtool import api
    from gradtool.io import atomic
    from gradtool.passes.backward import Offenders

    source = model if model is not None else discover(ctx)
    target = output or _default_output(source)
    if target != "-":
        atomic.target(target, force=force)
    forward = open_model(ctx, source, dims, shapes, batch)
    try:
        training = differentiate(forward, options)
    except Offenders as error:
        _show_offenders(ctx, error)
        raise
    for warning in training.warnings:
        say(ctx, f"warning: {warning}")
    path, size = api.save(training, target, force=force, external_data=external_data)
    remember(source)
    if target != "-":
        _show(ctx, source, training, path, size, form)


def _default_output(source: str) -> str:
    if source == "-":
        return "-"
    stem = source[: -len(".onnx")] if source.endswith(".onnx") else source
    return f"{stem}.grad.onnx"


def _show(
    ctx: click.Context, source: str, training: TrainingGraph, path: Path, size: int, form: str
) -> None:
    from gradtool.reports import training as reports
    from gradtool.reports.text import escape, json_text

    if form == "json":
        click.echo(json_text(reports.training_json(training, source, str(path), size)))
        return
    for line in reports.training_lines(training, source, str(path), size):
        click.echo(escape(line))
    say(ctx, "next: gradtool run " + source)


def _show_offenders(ctx: click.Context, error: Offenders) -> None:
    from gradtool.reports.console import stderr_console
    from gradtool.reports.table import render
    from gradtool.reports.training import offenders_table

    render(offenders_table(error.rows), stderr_console((ctx.obj or {}).get("color", "auto")))

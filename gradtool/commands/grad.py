"""The command `gradtool grad`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from gradtool.commands.models import differentiate, discover, open_model, remember
from gradtool.commands.options import (
    PATH,
    format_option,
    grad_options,
    model_argument,
    size_options,
)
from gradtool.commands.output import print_json, print_line, say

if TYPE_CHECKING:
    from gradtool.passes.training import TrainingGraph


@click.command("grad")
@model_argument
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=PATH,
    help="Where to write; default MODEL.grad.onnx; - is stdout.",
)
@click.option("--force", is_flag=True, help="Overwrite the output.")
@click.option(
    "--external-data",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Write weights to a file of their own.",
)
@size_options
@grad_options
@format_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    model: str | None,
    output: str | None,
    force: bool,
    external_data: Literal["auto", "always", "never"],
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    batch: int | None,
    form: str,
    **options: Any,
) -> None:  # fmt: skip
    """Write MODEL's training graph: forward, loss and gradients, in standard ONNX operators.

    MODEL is an ONNX file (.onnx, or .onnxtxt as text), or - for standard input.
    """
    from gradtool import api
    from gradtool.io import atomic

    source = model if model is not None else discover(ctx)
    target = output or _default_output(source)
    if target != "-":
        atomic.target(target, force=force)
    training = differentiate(ctx, open_model(ctx, source, dims, shapes, batch), options)
    path, size = api.save(training, target, force=force, external_data=external_data)
    remember(source)
    _show(ctx, source, training, path, size, form)


def _default_output(source: str) -> str:
    if source == "-":
        return "-"
    for suffix in (".onnx", ".onnxtxt"):
        if source.endswith(suffix):
            return f"{source[: -len(suffix)]}.grad.onnx"
    return f"{source}.grad.onnx"


def _show(
    ctx: click.Context, source: str, training: TrainingGraph, path: Path, size: int, form: str
) -> None:
    from gradtool.reports import training as reports

    to_stdout = str(path) == "-"
    if form == "json" and not to_stdout:
        print_json(reports.training_json(training, source, str(path), size))
        return
    for line in reports.training_lines(training, source, str(path), size):
        if to_stdout:
            say(ctx, line)
        else:
            print_line(line)
    if not to_stdout:
        say(ctx, f"next: gradtool report {source}")

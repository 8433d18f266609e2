"""The command `gradtool grad`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from gradtool.commands.discovery import meant, remember
from gradtool.commands.models import differentiate, open_model
from gradtool.commands.options import (
    PATH,
    format_option,
    grad_options,
    model_argument,
    optimizer_option,
    portable_option,
    size_options,
)
from gradtool.commands.output import print_json, print_line, say
from gradtool.errors import UsageError

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
@click.option(
    "--split",
    is_flag=True,
    help="Write two files: MODEL.forward.onnx, which returns what is saved, MODEL.backward.onnx.",
)
@click.option("--functions", is_flag=True, help="Write fused operators as local functions.")
@portable_option
@click.option(
    "--opset", type=click.IntRange(min=1), metavar="N", help="Raise the model to this opset."
)
@size_options
@grad_options
@optimizer_option
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
    split: bool,
    functions: bool,
    portable: bool,
    opset: int | None,
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
    from gradtool.io.save import STDOUT, require_stdout

    asked = meant(ctx, [model], (dims, shapes, batch), options, sized=False)
    targets = _targets(asked.source, output, split=split)
    for target in targets:
        if target == STDOUT:
            require_stdout(external_data)
        else:
            atomic.target(target, force=force)
    loaded = open_model(ctx, asked.source, dims, shapes, batch, opset)
    training = differentiate(ctx, loaded, {**asked.options, "loss_seed": split})
    halves = api.split(training) if split else None
    how: dict[str, Any] = {
        "force": force,
        "external_data": external_data,
        "functions": functions,
        "portable": portable,
        "stock": True,
        "own": True,
        "say": lambda line: say(ctx, line),
    }
    written = (
        api.save_split(halves, targets, **how)
        if halves
        else [api.save(training, targets[0], **how)]
    )
    remember(asked.source)
    _show(ctx, asked.source, training, written, form, halves.saved if halves else ())


def _targets(source: str, output: str | None, *, split: bool) -> list[str]:
    """The files to write. Raises UsageError if two shall go to standard output."""
    target = output or ("-" if source == "-" else f"{_stem(source)}.grad.onnx")
    if not split:
        return [target]
    if target == "-":
        raise UsageError("--split writes two files: name them with -o FILE")
    stem = _stem(target if output else source)
    suffix = ".onnxtxt" if target.endswith(".onnxtxt") else ".onnx"
    return [f"{stem}.forward{suffix}", f"{stem}.backward{suffix}"]


def _stem(path: str) -> str:
    return path.removesuffix(".onnxtxt").removesuffix(".onnx")


def _show(
    ctx: click.Context,
    source: str,
    training: TrainingGraph,
    written: list[tuple[Path, int]],
    form: str,
    saved: tuple[str, ...],
) -> None:
    from gradtool.reports import training as reports

    files = [(str(path), size) for path, size in written]
    to_stdout = files[0][0] == "-"
    if form == "json" and not to_stdout:
        print_json(reports.training_json(training, source, files, saved))
        return
    for line in reports.training_lines(training, source, files, saved):
        if to_stdout:
            say(ctx, line)
        else:
            print_line(line)
    if not to_stdout:
        say(ctx, "next: gradtool mirror --report")

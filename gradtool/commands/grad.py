"""The command `gradtool grad`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from gradtool.commands.call import Call, as_command
from gradtool.commands.discovery import Sizes, meant, remember
from gradtool.commands.models import differentiate, open_model
from gradtool.commands.options import (
    external_data_option,
    file_flag,
    filled,
    format_option,
    grad_options,
    head_option,
    model_argument,
    portable_option,
    size_options,
    switch,
)
from gradtool.errors import UsageError
from gradtool.workloads.grad_options import GradOptions

if TYPE_CHECKING:
    from gradtool.commands.output import Reporter
    from gradtool.workloads.training import TrainingGraph


@as_command("grad")
@model_argument
@file_flag("-o/--output", "FILE", "Where to write; default MODEL.grad.onnx; - is stdout.")
@switch("--force", "Overwrite the output.")
@external_data_option
@switch("--split", "Write two files: MODEL.forward.onnx, which returns what is saved, "
        "MODEL.backward.onnx.")  # fmt: skip
@switch("--params-as-inputs", "Make a pure function: parameters and state are inputs without a "
        "default.")  # fmt: skip
@switch("--functions", "Write fused operators as local functions.")
@portable_option
@click.option("--opset", type=click.IntRange(min=1), metavar="N",
              help="Raise the model to this opset.")  # fmt: skip
@head_option
@size_options
@grad_options
@format_option
def command(
    call: Call,
    /,
    *,
    model: str | None,
    output: str | None,
    force: bool,
    external_data: Literal["auto", "always", "never"],
    split: bool,
    params_as_inputs: bool,
    functions: bool,
    portable: bool,
    opset: int | None,
    form: str,
    **options: Any,
) -> None:  # fmt: skip
    """Write MODEL's training graph: forward, loss and gradients, in standard ONNX operators.

    MODEL is an ONNX file (.onnx, or .onnxtxt as text), or - for standard input.
    """
    from gradtool.commands.writing import require_models
    from gradtool.workloads.export import save, save_split

    asked = meant(call, [model], Sizes.of(options), options, sized=False)
    targets = _targets(asked.source, output, split=split)
    force = require_models(asked.source, targets, external_data, force=force)
    loaded = open_model(call.reporter, asked.source, asked.sizes, opset)
    training = differentiate(
        call.reporter, loaded, filled(GradOptions, asked.options, loss_seed=split)
    )
    if params_as_inputs:
        from gradtool.passes.parameters_as_inputs import parameters_as_inputs

        parameters_as_inputs(training.model)
    halves = None
    if split:
        from gradtool.passes.split import split as split_model

        halves = split_model(training.model)
    how: dict[str, Any] = {
        "force": force,
        "external_data": external_data,
        "functions": functions,
        "portable": portable,
        "stock": True,
        "own": True,
        "say": call.reporter.say,
    }
    written = save_split(halves, targets, **how) if halves else [save(training, targets[0], **how)]
    remember(asked.source)
    _show(call.reporter, asked.source, training, written, form, halves.saved if halves else ())


def _targets(source: str, output: str | None, *, split: bool) -> list[str]:
    """The files to write. Raises UsageError if two shall go to standard output."""
    from gradtool.commands.writing import unlinked

    target = output or ("-" if source == "-" else unlinked(f"{_stem(source)}.grad.onnx"))
    if not split:
        return [target]
    if target == "-":
        raise UsageError("--split writes two files: name them with -o FILE")
    stem = _stem(target if output else source)
    suffix = ".onnxtxt" if target.endswith(".onnxtxt") else ".onnx"
    return [unlinked(f"{stem}.{half}{suffix}") for half in ("forward", "backward")]


def _stem(path: str) -> str:
    return path.removesuffix(".onnxtxt").removesuffix(".onnx")


def _show(
    reporter: Reporter,
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
        reporter.json(reports.training_json(training, source, files, saved))
        return
    for line in reports.training_lines(training, source, files, saved):
        if to_stdout:
            reporter.say(line)
        else:
            reporter.line(line)
    if not to_stdout:
        reporter.say("next: gradtool mirror --report")

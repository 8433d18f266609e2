"""gradtool run"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from gradtool.commands.options import (
    differentiate,
    format_option,
    grad_options,
    open_model,
    say,
    size_options,
)
from gradtool.errors import UsageError

if TYPE_CHECKING:
    import onnx_ir as ir


@click.command("run")
@click.argument("model", required=False)
@click.option("--inputs", default="random", show_default=True, metavar="NPZ|DIR|random",
              help="Where the inputs are: a .npz file, a folder of .npy files, or random.")
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of random inputs.")
@click.option("--device", default="auto", show_default=True, metavar="auto|cpu|cuda[:N]",
              help="Where to run.")
@click.option("--engine", type=click.Choice(["arena", "ort"]), default="arena", show_default=True,
              help="Our executor, or stock onnxruntime.")
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
              help="Steps to run; the time is their median.")
@click.option("--measure", is_flag=True, help="Measure the peak against the plan.")
@click.option("--verify", type=click.Choice(["finite-diff", "ort"]), multiple=True,
              help="Check the gradients; exit 1 if they disagree.")
@click.option("--check-nan", is_flag=True, help="Name the first node whose result is not finite.")
@click.option("--check-arena", is_flag=True,
              help="Overwrite every buffer when it dies; gradients must keep their bits.")
@click.option("--save-grads", metavar="NPZ", help="Write the gradients, by the name of the value.")
@click.option("--save-outputs", metavar="NPZ", help="Write the other outputs, by name.")
@click.option("--force", is_flag=True, help="Overwrite the files to be written.")
@size_options
@grad_options
@format_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    model: str | None,
    inputs: str,
    seed: int,
    device: str,
    engine: Literal["arena", "ort"],
    repeat: int,
    measure: bool,
    verify: tuple[str, ...],
    check_nan: bool,
    check_arena: bool,
    save_grads: str | None,
    save_outputs: str | None,
    force: bool,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    batch: int | None,
    form: str,
    **options: Any,
) -> None:  # fmt: skip
    """Run forward and backward of MODEL once; a forward model is differentiated first."""
    from gradtool import api
    from gradtool.io import atomic

    if engine == "ort" and (measure or check_nan or check_arena):
        raise UsageError("--measure, --check-nan and --check-arena are of --engine arena")
    for path in (save_grads, save_outputs):
        if path is not None:
            atomic.target(path, force=force)
    training = _training(ctx, open_model(ctx, model, dims, shapes, batch), options)
    arrays = api.read_inputs(training, inputs, seed)
    result = api.run(
        training,
        arrays,
        device=device,
        engine=engine,
        repeat=repeat,
        measure=measure,
        check_nan=check_nan,
        check_arena=check_arena,
    )
    _write(save_grads, result.gradients)
    _write(save_outputs, result.outputs)
    _show(ctx, result, training, form, device if engine == "arena" else "onnxruntime")
    _verify(ctx, verify, training, arrays, result)


def _training(ctx: click.Context, loaded: ir.Model, options: dict[str, Any]) -> ir.Model:
    """The model itself if it holds gradients already, else its training graph."""
    from gradtool import api

    if api.is_training_graph(loaded):
        return loaded
    made = differentiate(loaded, options)
    for warning in made.warnings:
        say(ctx, f"warning: {warning}")
    say(ctx, f"loss: {made.loss_said}   parameters: {len(made.gradients)} of {made.candidates}")
    return made.model


def _write(path: str | None, arrays: Any) -> None:
    if path is not None:
        from gradtool.io import arrays as files

        files.save(path, arrays)


def _show(ctx: click.Context, result: Any, training: ir.Model, form: str, where: str) -> None:
    from gradtool.reports import running
    from gradtool.reports.console import stdout_console
    from gradtool.reports.table import render
    from gradtool.reports.text import json_text

    if form == "json":
        click.echo(json_text(running.run_json(result, where)))
        return
    console = stdout_console((ctx.obj or {}).get("color", "auto"))
    render(running.gradients_table(result), console)
    for line in running.run_lines(result, where):
        console.print(line, soft_wrap=True)
    del training


def _verify(
    ctx: click.Context, checks: tuple[str, ...], training: ir.Model, arrays: Any, result: Any
) -> None:
    if checks:
        from gradtool.exec import verify

        for check in checks:
            say(ctx, f"verified: {verify.CHECKS[check](training, arrays, result)}")

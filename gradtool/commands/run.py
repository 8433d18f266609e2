"""The command `gradtool run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from gradtool.commands import drawing, plan_names, threads
from gradtool.commands.discovery import meant
from gradtool.commands.models import expand, label_names, open_model, training_of
from gradtool.commands.options import (
    PATH,
    format_option,
    grad_options,
    memory_size,
    model_argument,
    optimizer_option,
    size_options,
)
from gradtool.commands.output import color, print_json, print_line, print_table, say
from gradtool.errors import UsageError
from gradtool.limits import DEFAULT

if TYPE_CHECKING:
    import onnx_ir as ir


@click.command("run")
@model_argument
@click.option(
    "--inputs",
    default="random",
    show_default=True,
    metavar="NPZ|DIR|random",
    type=PATH,
    help="Where the inputs are: a .npz file, a folder of .npy files, or random.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="The seed of random inputs.",
)
@click.option(
    "--device", default="auto", show_default=True, metavar="auto|cpu|cuda[:N]", help="Where to run."
)
@click.option(
    "--engine",
    type=click.Choice(["arena", "ort"]),
    default="arena",
    show_default=True,
    help="Our executor, or stock onnxruntime.",
)
@click.option(
    "--plan",
    "plan",
    callback=plan_names.plan_name,
    default="keep",
    show_default=True,
    metavar=plan_names.METAVAR,
    help="What to compute again; none: only the order of the steps changes; or the plan in a file.",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Steps to run; the time is their median.  --profile times at least 5, --trace at least 3.",
)
@threads.option
@click.option("--measure", is_flag=True, help="Measure the peak against the plan.")
@click.option(
    "--verify",
    type=click.Choice(["finite-diff", "ort", "plans"]),
    multiple=True,
    help="Check the gradients: by differences, in onnxruntime, or the bits of every plan; exit 1 "
    "if they disagree.",
)
@click.option(
    "--profile",
    metavar="FILE.json",
    type=PATH,
    help="Write the time of each node, everything kept, for gradtool recompute --cost FILE.json.",
)
@click.option(
    "--trace",
    metavar="FILE.json",
    type=PATH,
    help="Write a trace for Perfetto: each node as long as it took, and memory beside it.",
)
@click.option("--check-nan", is_flag=True, help="Name the first node whose result has a NaN.")
@click.option(
    "--check-arena",
    is_flag=True,
    help="Overwrite every buffer when it dies; gradients must keep their bits.",
)
@click.option(
    "--save-grads", metavar="NPZ", type=PATH, help="Write the gradients, by the name of the value."
)
@click.option("--save-outputs", metavar="NPZ", type=PATH, help="Write the other outputs, by name.")
@click.option(
    "--fetch",
    multiple=True,
    metavar="GLOB|@FILE",
    help="Compute these values only, interior ones too; no gradients if none are among them.",
)
@click.option(
    "--max-turns",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Stop a step after N turns of its loops.  [default: {DEFAULT.turns}]",
)
@click.option(
    "--max-dynamic",
    metavar="SIZE",
    callback=memory_size,
    help="Stop before values whose sizes depend on data take more.  [default: 512MiB, or what the "
    "step is planned to take]",
)
@click.option("--force", is_flag=True, help="Overwrite the files to be written.")
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
    inputs: str,
    seed: int,
    device: str,
    engine: Literal["arena", "ort"],
    plan: str,
    repeat: int,
    measure: bool,
    verify: tuple[str, ...],
    profile: str | None,
    trace: str | None,
    check_nan: bool,
    check_arena: bool,
    save_grads: str | None,
    save_outputs: str | None,
    fetch: tuple[str, ...],
    max_turns: int | None,
    max_dynamic: int | None,
    force: bool,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    batch: int | None,
    form: str,
    **options: Any,
) -> None:  # fmt: skip
    """Run forward and backward of MODEL once; a forward model is differentiated first."""
    from gradtool import api
    from gradtool.exec.allowance import limited
    from gradtool.io import atomic
    from gradtool.reports import running

    flags = measure or check_nan or check_arena or trace is not None
    flags = flags or (max_turns or max_dynamic) is not None
    ctx.with_resource(limited(max_turns, max_dynamic))
    where = _place(device, engine, flags=flags)
    files = {
        "--save-grads": save_grads, "--save-outputs": save_outputs,
        "--profile": profile, "--trace": trace,
    }  # fmt: skip
    named = {flag: path for flag, path in files.items() if path is not None}
    atomic.require_targets(named, force=force)
    asked = meant(ctx, [model], (dims, shapes, batch), options, sized=inputs == "random")
    loaded = open_model(ctx, asked.source, *asked.sizes)
    training, known = _chosen(ctx, loaded, expand(fetch), asked.options)
    training, arrays = api.fed(training, inputs, seed, known)
    chosen = _planned(ctx, training, plan, arrays)
    later = dict(arrays) if verify or profile or trace else {}
    result = api.step(
        chosen,
        arrays,
        engine,
        device=where,
        repeat=repeat,
        measure=measure,
        check_nan=check_nan,
        check_arena=check_arena,
        copy=False,
    )
    _write(save_grads, result.gradients)
    _write(save_outputs, result.outputs)
    place = where if engine == "arena" else "onnxruntime"
    _show(ctx, result, form, place, fetched=bool(fetch))
    if running.is_flat(result):
        say(ctx, f"warning: {running.FLAT}")
    _verify(ctx, verify, training, later, result)
    _profile(profile, training, later, repeat, force=force)
    if trace is not None:
        drawn = _traced(chosen, later, where, repeat, result.measurement, asked.source)
        drawing.save({trace: drawn}, force=force)


def _place(device: str, engine: str, *, flags: bool) -> str:
    """The device that was meant. Raises DeviceError if it is missing, before any work is done."""
    if engine == "arena":
        from gradtool.exec.device import open_device

        return open_device(device).name
    if flags:
        raise UsageError(
            "--measure, --trace, --check-nan, --check-arena, --max-turns and --max-dynamic are of "
            "--engine arena"
        )
    if device not in ("auto", "cpu"):
        raise UsageError("--engine ort runs on the CPU; leave --device out")
    return "cpu"


def _write(path: str | None, arrays: Any) -> None:
    if path is not None:
        from gradtool.io import arrays as files

        files.save(path, arrays)


def _profile(
    path: str | None, training: ir.Model, arrays: Any, repeat: int, *, force: bool
) -> None:
    if path is not None:
        from gradtool.exec import profile
        from gradtool.exec.feeds import sizes
        from gradtool.plans import workload

        work = workload(training, sizes(training, arrays))
        repeats = max(repeat, profile.REPEATS)
        profile.save(profile.profile(work, arrays, repeats), path, force=force)


def _traced(
    model: ir.Model, arrays: Any, device: str, repeat: int, measured: Any, name: str
) -> str:
    """The steps of a run as a trace, each with its own time."""
    from gradtool.exec.step_costs import REPEATS, step_costs
    from gradtool.reports.trace import measured_trace

    costs = step_costs(model, arrays, device=device, repeats=max(repeat, REPEATS))
    return measured_trace(costs, name, measured)


def _chosen(
    ctx: click.Context, loaded: ir.Model, fetch: list[str], options: dict[str, Any]
) -> tuple[ir.Model, list[str]]:
    """The training graph, or what of it is fetched; the forward model if that has all of it.

    Second, the names that arrays may have although what is fetched needs none of them.
    """
    from gradtool import api
    from gradtool.passes.fetch import has_values

    if fetch and has_values(loaded, fetch):
        return api.fetched(loaded, fetch), [*api.names(loaded), *label_names(loaded, options)]
    training = training_of(ctx, loaded, options)
    return api.fetched(training, fetch), api.names(training) if fetch else []


def _planned(ctx: click.Context, training: ir.Model, plan: str, arrays: Any) -> ir.Model:
    """The training graph as a plan has it, for the sizes of the inputs."""
    if plan == "keep":
        return training
    from gradtool import api
    from gradtool.exec.feeds import sizes
    from gradtool.reports.progress import bar

    dims = sizes(training, arrays)
    with bar(f"planning {plan}", color=color(ctx)):
        if plan.endswith(plan_names.SUFFIX):
            return api.recompute(training, plan=plan, dims=dims).model
        return api.recompute(training, plan, dims=dims).model


def _show(ctx: click.Context, result: Any, form: str, where: str, *, fetched: bool) -> None:
    from gradtool.reports import running

    if form == "json":
        print_json(running.run_json(result, where, fetched=fetched))
        return
    if result.outputs and (fetched or not result.gradients):
        print_table(ctx, running.outputs_table(result))
    if result.gradients or not (fetched or result.outputs):
        print_table(ctx, running.gradients_table(result))
    for line in running.run_lines(result, where):
        print_line(line)


def _verify(
    ctx: click.Context, checks: tuple[str, ...], training: Any, arrays: Any, result: Any
) -> None:
    if checks:
        from gradtool.exec import verify
        from gradtool.passes.train_mode import at_random
        from gradtool.reports import running

        for warning in at_random(training):
            raise UsageError(f"--verify compares runs, and this model's differ: {warning}")
        for check in checks:
            zero = "; all of them are zero" if running.is_flat(result) else ""
            say(ctx, f"verified: {verify.CHECKS[check](training, arrays, result)}{zero}")

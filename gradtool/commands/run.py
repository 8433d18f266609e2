"""The command `gradtool run`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from gradtool.commands import drawing, plan_names, threads, timed
from gradtool.commands.call import Call, Choice, as_command
from gradtool.commands.discovery import Meant, Sizes, meant
from gradtool.commands.models import (
    is_differentiated,
    label_names,
    open_model,
    refuse_gradient_flags,
    training_of,
)
from gradtool.commands.options import (
    PATH,
    expand,
    file_flag,
    filled,
    flags,
    format_option,
    grad_options,
    kernel_options,
    model_argument,
    size_options,
    switch,
)
from gradtool.commands.output import SILENT
from gradtool.errors import UsageError
from gradtool.operators.kernel_sets import AUTO, NONE
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.names import kernels_of
from gradtool.workloads.run_options import RunOptions

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from gradtool.commands.output import Reporter
    from gradtool.operators.kernel_sets import Kernels

    Arrays = dict[str, np.ndarray[Any, Any]]

RANDOM = "random"
FILES = ("save_grads", "save_outputs", "profile", "trace", "html")


@as_command("run")
@model_argument
@flags(RunOptions, device="auto")
@kernel_options
@click.option("--plan", "plan", callback=plan_names.plan_name, default="keep", show_default=True,
              metavar=plan_names.METAVAR, help="What to compute again; reorder: only the order of "
                  "the steps changes; or the plan in a file.")  # fmt: skip
@threads.option
@click.option("--verify", type=Choice(["finite-diff", "ort", "plans"]), multiple=True,
              help="Check the gradients: by differences, in onnxruntime, or the bits of every "
                   "plan; exit 1 if they disagree.")  # fmt: skip
@file_flag("--profile", "FILE.json", "Write the time of each node, everything kept, for gradtool "
           "recompute --cost FILE.json.")  # fmt: skip
@switch("--explain-kernels", "Say what would run each step, how its images lie, and why; nothing "
        "runs.")  # fmt: skip
@file_flag("--trace", "FILE.json", "Write a trace for Perfetto: each node as long as it took, and "
           "memory beside it.")  # fmt: skip
@file_flag("--html", "FILE.html", "Write a page: what each kernel took, under what this machine "
           "reaches (roofline).")  # fmt: skip
@file_flag("--save-grads", "NPZ", "Write the gradients, by the name of the value.")
@click.option("--save-outputs", metavar="NPZ", type=PATH, help="Write the other outputs, by name.")
@switch("--force", "Overwrite the files to be written.")
@size_options
@grad_options
@format_option
def command(call: Call, /, *, model: str | None, **options: Any) -> None:
    """Run forward and backward of MODEL once; a forward model is differentiated first."""
    from gradtool.ops.shared.runtime_limits import limited

    where = _place(options)
    _require_targets(options)
    with limited(options["max_turns"], options["max_dynamic"]):
        _run(call, model, where, options)


def _run(call: Call, model: str | None, where: str, options: dict[str, Any]) -> None:
    """Open the model, plan it, run a step on a device, and write and print what comes out."""
    from gradtool import api
    from gradtool.commands.kernels import available, say_both
    from gradtool.exec import feeds
    from gradtool.exec.run import kernels_on
    from gradtool.exec.run import planned_for as carried
    from gradtool.graph.training_info import TrainingInfo
    from gradtool.reports import running

    reporter, inputs, engine = call.reporter, options["inputs"], options["engine"]
    sizes = Sizes.of(options)
    asked = meant(call, [model], sizes, options, sized=inputs == RANDOM)
    training, arrays = _fed(reporter, asked, call.given)
    if inputs == RANDOM and arrays:
        reporter.say(f"inputs: random, seed {options['seed']} (--inputs FILE gives others)")
    elif options["plan"].endswith(plan_names.SUFFIX):
        training, arrays = _sized(asked, training, arrays)
    if options["save_grads"] is not None and not TrainingInfo.of(training).gradients:
        raise UsageError("--save-grads: this step returns no gradients")
    is_auto = options["kernels"] == AUTO
    asked_for = kernels_on(
        where, carried(training, AUTO, where) if is_auto else kernels_of(options, where)
    )
    chosen, planned_for = _planned(
        reporter, training, options["plan"], arrays, asked_for, is_auto=is_auto
    )
    if is_auto and where == "cpu" and planned_for != NONE:
        asked_for = planned_for
    verify, profile, drawn = options["verify"], options["profile"], timed.drawn(options)
    later = dict(arrays) if verify or profile or drawn else {}
    kernels = available(reporter, asked_for)
    if kernels != planned_for:
        say_both(reporter, chosen, feeds.sizes(chosen, arrays), planned_for, kernels)
    if options["explain_kernels"]:
        _explain(reporter, chosen, arrays, kernels, options["form"])
        return
    how = filled(RunOptions, options, device=where, kernels=kernels, copy=False)
    result = api.step(chosen, arrays, how)
    _write(options["save_grads"], result.gradients)
    _write(options["save_outputs"], result.outputs)
    place = where if engine == "arena" else "onnxruntime"
    _show(reporter, result, options["form"], place, fetched=bool(options["fetch"]))
    if running.is_flat(result):
        reporter.say(f"warning: {running.FLAT}")
    _verify(reporter, verify, training, later, result)
    if profile is not None:
        timed.profile(reporter, profile, training, later, where, kernels, options)
    if drawn:
        costs = timed.costs(chosen, later, where, kernels, options["repeat"])
        pages = {path: draw(costs, asked.source, result) for path, draw in drawn.items()}
        drawing.save(pages, force=options["force"])


def _fed(reporter: Reporter, asked: Meant, given: Collection[str] = ()) -> tuple[ir.Model, Arrays]:
    """The graph that runs, and the arrays for its inputs."""
    from gradtool import api

    options = asked.options
    loaded = open_model(reporter, asked.source, asked.sizes)
    training, known = _chosen(
        reporter, loaded, expand(options["fetch"]), filled(GradOptions, options), given
    )
    return api.fed(training, options["inputs"], options["seed"], known)


def _sized(asked: Meant, training: ir.Model, arrays: Arrays) -> tuple[ir.Model, Arrays]:
    """The graph of a plan in a file: with open sizes, or the sizes of the inputs."""
    from gradtool import io
    from gradtool.exec.feeds import sizes
    from gradtool.workloads import plan_files

    found = {name: size for name, size in sizes(training, arrays).items()
             if name in io.symbols(training)}  # fmt: skip
    if not found or asked.source == "-":
        return training, arrays
    if plan_files.is_of(plan_files.load(asked.options["plan"]), training):
        return training, arrays
    dims = [*asked.sizes.dims, *(f"{name}={size}" for name, size in found.items())]
    return _fed(SILENT, replace(asked, sizes=replace(asked.sizes, dims=dims)))


def _require_targets(options: Mapping[str, Any]) -> None:
    """Refuse files that cannot be written before any work is done."""
    from gradtool.io import atomic

    paths = {f"--{name.replace('_', '-')}": options[name] for name in FILES}
    found = {flag: path for flag, path in paths.items() if path is not None}
    atomic.require_targets(found, force=options["force"])


def _place(options: Mapping[str, Any]) -> str:
    """The device of a run, looked for before any work is done.

    Raises:
        DeviceError: it is missing.
        UsageError: no kernels are asked for.
    """
    if options["kernels"] == NONE:
        raise UsageError("--kernels none is of plans for other runtimes: run needs kernels")
    if options["engine"] != "arena":
        return "cpu"
    from gradtool.exec.device import open_device
    from gradtool.exec.run import home

    device = options["device"]
    if device == "auto" and options["kernels"] not in (AUTO, "numpy"):
        device = home(options["kernels"])
    return open_device(device).name


def _explain(
    reporter: Reporter, model: ir.Model, arrays: Arrays, kernels: Kernels, form: str
) -> None:
    """Say the kernel of each step."""
    from gradtool.exec.feeds import sizes
    from gradtool.exec.run import sized_and_planned
    from gradtool.reports import kernels as reports

    plan = sized_and_planned(model, sizes(model, arrays), kernels=kernels)[1]
    if form == "json":
        reporter.json(reports.kernels_json(plan.program))
    else:
        reporter.table(reports.kernels_table(plan.program), form)


def _write(path: str | None, arrays: Any) -> None:
    if path is not None:
        from gradtool.io import arrays as files

        files.save(path, arrays)


def _chosen(
    reporter: Reporter,
    loaded: ir.Model,
    fetch: list[str],
    options: GradOptions,
    given: Collection[str],
) -> tuple[ir.Model, list[str]]:
    """The training graph, or the fetched part; the forward model if it has all of it.

    Second, the names that arrays may have although what is fetched needs none of them.
    """
    from gradtool import api
    from gradtool.passes.fetch import has_values

    if fetch and has_values(loaded, fetch):
        flags = set(given) - {"labels"}  # arrays may have their names
        refuse_gradient_flags(flags, "the values to fetch need no gradient")
        return api.fetched(loaded, fetch), [*api.names(loaded), *label_names(loaded, options)]
    if is_differentiated(loaded, options):
        refuse_gradient_flags(given, "the model holds its gradients")
    training = training_of(reporter, loaded, options)
    return api.fetched(training, fetch), api.names(training) if fetch else []


def _planned(
    reporter: Reporter, training: ir.Model, plan: str, arrays: Any, kernels: Kernels, *,
    is_auto: bool,
) -> tuple[ir.Model, Kernels]:  # fmt: skip
    """The training graph by a plan, for the sizes of the inputs, and the kernels of the plan.

    Without a word about kernels they are those of a file's plan; CuPy's follow one for numpy's.
    """
    if plan == "keep":
        return training, kernels
    from gradtool import api
    from gradtool.exec.feeds import sizes

    dims = sizes(training, arrays)
    file = api.load_plan(plan) if plan.endswith(plan_names.SUFFIX) else None
    if file is not None and (is_auto or (file.kernels == "numpy" and kernels == "cupy")):
        kernels = file.kernels
    with reporter.bar(f"planning {plan}"):
        return api.recompute(training, file or plan, dims=dims, kernels=kernels).model, kernels


def _show(reporter: Reporter, result: Any, form: str, where: str, *, fetched: bool) -> None:
    from gradtool.reports import running

    if form == "json":
        reporter.json(running.run_json(result, where, fetched=fetched))
        return
    if result.outputs and (fetched or not result.gradients):
        reporter.table(running.outputs_table(result))
    if result.gradients or not (fetched or result.outputs):
        reporter.table(running.gradients_table(result))
    for line in running.run_lines(result, where):
        reporter.line(line)


def _verify(
    reporter: Reporter, checks: tuple[str, ...], training: Any, arrays: Any, result: Any
) -> None:
    if checks:
        from gradtool.exec import verify
        from gradtool.passes.train_mode import at_random
        from gradtool.reports import running

        for warning in at_random(training):
            raise UsageError(f"--verify compares runs, and this model's differ: {warning}")
        for check in checks:
            zero = "; all of them are zero" if running.is_flat(result) else ""
            reporter.say(f"verified: {verify.CHECKS[check](training, arrays, result)}{zero}")

"""The command `gradtool kit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gradtool.commands import plan_names
from gradtool.commands.call import Call, Choice, as_command
from gradtool.commands.discovery import Sizes, meant
from gradtool.commands.options import (
    file_flag,
    filled,
    flags,
    format_option,
    head_option,
    model_argument,
    portable_option,
    size_options,
    switch,
)
from gradtool.graph.optimizers import UPDATING
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.names import KEEP

if TYPE_CHECKING:
    from gradtool.commands.output import Reporter
    from gradtool.kit.write import Kit
    from gradtool.workloads.rewritten import Graph


@as_command("kit")
@model_argument
@file_flag("-o/--output", "FOLDER", "Where to write; default MODEL.kit.")
@switch("--force", "Replace the kit that is there.")
@click.option("--plan", default=KEEP, show_default=True, callback=plan_names.plan_name,
              metavar=plan_names.METAVAR, help="The memory plan of the step.")  # fmt: skip
@click.option("--optimizer", type=Choice(UPDATING), default="adamw", show_default=True,
              metavar="NAME",
              help=f"What the step updates parameters by: {', '.join(UPDATING)}.")  # fmt: skip
@switch("--javascript", "Write kit.mjs and its types as well.")
@portable_option
@head_option
@size_options
@flags(GradOptions, without=["optimizer"])
@format_option
def command(
    call: Call,
    /,
    *,
    model: str | None,
    output: str | None,
    force: bool,
    plan: str,
    javascript: bool,
    portable: bool,
    form: str,
    **options: Any,
) -> None:  # fmt: skip
    """Write what trains MODEL with onnxruntime alone, as a folder.

    step.onnx is a pure function from batch, state and learning rate to loss and next state,
    eval.onnx the forward model on that state; manifest.json says how they go together.
    """
    from gradtool.commands.results import beside
    from gradtool.errors import UsageError
    from gradtool.kit.write import require_folder, write_kit

    asked = meant(call, [model], Sizes.of(options), options)
    if asked.source == "-":
        raise UsageError("a kit is of a model in a file, into which its weights are written back")
    target = output or beside(asked.source, "kit", "")
    require_folder(target, force=force)
    graph = _planned(call, asked.source, asked.sizes, asked.options, plan)
    kit = write_kit(
        graph, target, force=force, portable=portable, javascript=javascript, stock=True,
        say=call.reporter.say,
    )  # fmt: skip
    _show(call.reporter, kit, form)


def _planned(call: Call, source: str, sizes: Sizes, options: dict[str, Any], plan: str) -> Graph:
    """The whole step in the order of a plan; its saving is a remark."""
    from gradtool.commands.models import open_model, training_of

    if plan == KEEP:
        loaded = open_model(call.reporter, source, sizes)
        return training_of(call.reporter, loaded, filled(GradOptions, options))
    from gradtool.commands import plans
    from gradtool.commands.workloads import open_workloads
    from gradtool.reports.plans import one_line
    from gradtool.workloads import strategies
    from gradtool.workloads.plans import write

    strategy = plan_names.strategy_named(plan)
    (opened,) = open_workloads(call, [source], sizes=sizes, options={**options, "plan": plan})
    both = plans.plan(call.reporter, opened, [strategies.keep, strategy])
    for line in (*both.found[-1].notes, one_line(both.rows)):
        call.reporter.say(line)
    return write(opened.work, both.found[-1])


def _show(reporter: Reporter, kit: Kit, form: str) -> None:
    from gradtool.text.units import format_bytes

    if form == "json":
        reporter.json(kit.manifest)
        return
    for key in ("step", "eval"):
        told = kit.manifest[key]
        given = ", ".join(
            f"{each['name']} {each['type']}{each['shape']}" for each in told["inputs"]
        )
        reporter.line(f"{told['file']}: takes {given} and {len(told['state'])} tensors of state")
    tensors = kit.manifest["state"]["tensors"]
    counts = [
        f"{sum(each['role'] == role for each in tensors)} {words}"
        for role, words in (
            ("parameter", "parameters"), ("statistic", "statistics"),
            ("optimizer", "of the optimizer"),
        )
        if any(each["role"] == role for each in tensors)
    ]  # fmt: skip
    reporter.line(f"state: {', '.join(counts)}")
    reporter.line(f"wrote {kit.folder} ({format_bytes(kit.size)})")
    reporter.say(f"next: train, then gradtool kit merge {kit.folder} STATE -o trained.onnx")

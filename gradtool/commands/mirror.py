"""The command `gradtool mirror`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gradtool.commands.call import Call, as_command
from gradtool.commands.discovery import Sizes, meant
from gradtool.commands.options import (
    PATH,
    grad_options,
    kernel_options,
    plan_table_options,
    size_options,
    table_format_option,
    write_options,
)
from gradtool.errors import UsageError

if TYPE_CHECKING:
    from gradtool.workloads.plans import Strategy


@as_command("mirror")
@click.argument("models", metavar="[MODEL]...", nargs=-1, type=PATH)
@click.option("--report", is_flag=True, help="Print the plans side by side; write nothing.")
@click.option(
    "--policy",
    default="mirror",
    show_default=True,
    metavar="NAME|FILE",
    help="What may run twice: mirror, dots, cheap, or a TOML file.",
)
@click.option("--keep", multiple=True, metavar="GLOB", help="Never run these nodes twice.")
@click.option(
    "--drop", multiple=True, metavar="GLOB", help="Let these nodes run twice, whatever the policy."
)
@click.option(
    "--checkpoints",
    multiple=True,
    metavar="NAMES|@FILE",
    help="With --report: a row for segments between these values.",
)
@click.option("--explain", metavar="TENSOR", help="Say why a value is kept, and what it costs.")
@plan_table_options
@kernel_options
@write_options
@size_options
@grad_options
@table_format_option
def command(
    call: Call,
    /,
    *,
    models: tuple[str, ...],
    report: bool,
    policy: str,
    keep: tuple[str, ...],
    drop: tuple[str, ...],
    checkpoints: tuple[str, ...],
    explain: str | None,
    **options: Any,
) -> None:  # fmt: skip
    """Drop activations that are cheap to compute, and compute them again in the backward pass.

    Writes MODEL.mirror.onnx, or with --report prints what each plan would take. Only what lowers
    the peak is applied: the result never takes more than keeping everything.
    """
    from functools import partial

    from gradtool.commands import comparing, plans, writing
    from gradtool.commands.workloads import open_workloads
    from gradtool.planning.pareto.requirements import lacking
    from gradtool.planning.recompute.policy import policy_named
    from gradtool.workloads import strategies
    from gradtool.workloads.names import KEEP, LIGHT, REORDER

    if len(models) > 1 and not report:
        raise UsageError("several models are for --report")
    chosen = partial(strategies.mirror, policy=policy_named(policy), keep=keep, drop=drop)
    asked = meant(call, models, Sizes.of(options), options)
    planned = asked.options
    if not report and explain is None:
        options["force"] = writing.require_target(asked.source, "mirror", options)
        planned = writing.planned_for(planned)
    opened = open_workloads(call, asked.sources, sizes=asked.sizes, options=planned)
    if explain is not None:
        plans.explain(call.reporter, opened[0], chosen, explain, options["form"])
        return
    if not report:
        writing.write(call.reporter, opened[0], chosen, "mirror", options)
        return
    listed: dict[str, Strategy] = {
        KEEP: strategies.keep,
        REORDER: strategies.reorder,
        "mirror": chosen,
        "sqrt": strategies.sqrt,
    }
    if not (said := lacking()):
        listed |= {LIGHT: strategies.light, "optimal": strategies.optimal}
    if checkpoints:
        names = plans.checkpoint_names(checkpoints)
        listed["checkpoints"] = partial(strategies.checkpoints, names=names)
    comparing.report(call.reporter, opened, listed, options)
    if said:
        call.reporter.remark(f"no row for optimal: {said}", options["form"])

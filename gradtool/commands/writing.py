"""The model of a plan, written beside the one it was made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from gradtool.commands.output import print_json, print_line, print_table, say
from gradtool.commands.planning import SCHEMA_VERSION, plan, row

if TYPE_CHECKING:
    from gradtool.commands.workloads import Opened
    from gradtool.plans import Strategy
    from gradtool.reports.plans import Row


def write(
    ctx: click.Context, opened: Opened, strategy: Strategy, kind: str, options: Mapping[str, Any]
) -> None:
    """Write the model of a plan as `MODEL.<kind>.onnx`, and say what it saves.

    Into a file that ends in `.json` goes the plan itself.
    """
    from gradtool import api, plan_files, plans, strategies
    from gradtool.exec.ort_options import how_to_load

    target = options["output"] or default_target(opened.name, kind)
    kept, found = plan(ctx, opened, [strategies.keep, strategy])
    rows = [row(opened, planned) for planned in (kept, found)]
    if target.endswith(plan_files.SUFFIX):
        size = plan_files.save(opened.work, found, target, force=options["force"])
        _show(ctx, opened, rows, found.notes, (target, size), options["form"])
        return
    model = plans.write(opened.work, found)
    hint = "" if options["barrier"] else how_to_load(model)
    path, size = api.save(
        model,
        target,
        force=options["force"],
        external_data=options["external_data"],
        functions=options["functions"],
        barrier=options["barrier"],
        portable=options["portable"],
        say=lambda line: say(ctx, line),
        stock=True,
        own=True,
    )
    _show(ctx, opened, rows, found.notes, (str(path), size), options["form"])
    if hint:
        say(ctx, hint)


def require_target(source: str, kind: str, options: Mapping[str, Any]) -> None:
    """Refuse a file that exists or cannot be written, before any work is done.

    Raises:
        UsageError: the file is there and `--force` is not, its folder cannot be written to, or
            standard output cannot take a model.
    """
    from gradtool.io import atomic
    from gradtool.io.save import STDOUT, require_stdout

    target = options["output"] or default_target(source, kind)
    if target == STDOUT:
        require_stdout(options["external_data"])
    else:
        atomic.target(target, force=options["force"])


def default_target(source: str, kind: str) -> str:
    """`model.onnx` and `model.grad.onnx` become `model.<kind>.onnx`; a stream stays one."""
    if source == "-":
        return "-"
    suffix = ".onnxtxt" if source.endswith(".onnxtxt") else ".onnx"
    return f"{source.removesuffix(suffix).removesuffix('.grad')}.{kind}{suffix}"


def _show(
    ctx: click.Context,
    opened: Opened,
    rows: Sequence[Row],
    notes: Sequence[str],
    written: tuple[str, int],
    form: str,
) -> None:
    from gradtool.reports import plans as reports
    from gradtool.reports.units import format_bytes

    path, size = written
    if path == "-":
        for note in (*notes, reports.one_line(rows)):
            say(ctx, note)
        return
    if form == "json":
        document = reports.plans_json(rows, opened.dims, notes)
        print_json({"schema_version": SCHEMA_VERSION, **document, "written": path, "bytes": size})
        return
    print_table(ctx, reports.plans_table([rows]), form)
    for line in (*notes, f"wrote {path} ({format_bytes(size)})"):
        print_line(line) if form == "table" else say(ctx, line)

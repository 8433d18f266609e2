"""Reports to look at in a browser: `report --html` and `report --trace`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from gradtool.commands.output import color, print_json, print_line, print_table, say
from gradtool.commands.plan_names import strategy_named
from gradtool.commands.planning import SCHEMA_VERSION, plan, row
from gradtool.errors import UsageError

if TYPE_CHECKING:
    from gradtool.commands.workloads import Opened
    from gradtool.plans import Planned

KEEP = "keep"
USUAL = ("mirror", "sqrt")
FILES = ("html", "trace")


def asked(models: Sequence[str], by: str | None, options: Mapping[str, Any]) -> bool:
    """Whether a file is to be written; that it can be is checked before any work is done.

    Raises:
        UsageError: flags do not go together, a file exists without `--force`, or its folder cannot
            be written to.
    """
    from gradtool.io import atomic

    paths = {f"--{kind}": options[kind] for kind in FILES if options[kind] is not None}
    if not paths:
        for flag in ("plan", "frontier"):
            if options[flag]:
                raise UsageError(f"--{flag} is of --html{' and --trace' * (flag == 'plan')}")
        return False
    if len(models) > 1:
        raise UsageError("--html and --trace are for one model")
    if by is not None:
        raise UsageError("--by is of what is printed: leave out --html and --trace")
    if options["frontier"] and options["html"] is None:
        raise UsageError("--frontier is of --html")
    atomic.require_targets(paths, force=options["force"])
    return True


def write(ctx: click.Context, opened: Opened, form: str, options: Mapping[str, Any]) -> None:
    """Plan a model in every way that is asked for, write the files, and print the plans."""
    from gradtool.reports import plans as reports
    from gradtool.reports.html import html_page
    from gradtool.reports.page_data import Page
    from gradtool.reports.trace import planned_trace
    from gradtool.reports.units import format_bytes

    names = dict.fromkeys((KEEP, *(options["plan"] or USUAL)))
    found = plan(ctx, opened, [strategy_named(name) for name in names])
    rows = [row(opened, each) for each in found]
    texts = {}
    if options["html"] is not None:
        curve = _frontier(ctx, opened) if options["frontier"] else ()
        page = Page(opened.name, rows, opened.dims, opened.assumed, curve)
        texts[options["html"]] = html_page(page)
    if options["trace"] is not None:
        texts[options["trace"]] = planned_trace([each.plan for each in found], opened.name)
    sizes = save(texts, force=options["force"])
    notes = [note for each in found for note in each.notes]
    if form == "json":
        document = reports.plans_json(rows, opened.dims, notes)
        print_json({"schema_version": SCHEMA_VERSION, **document, "written": sizes})
        return
    print_table(ctx, reports.plans_table([rows]), form)
    lines = [f"wrote {path} ({format_bytes(size)})" for path, size in sizes.items()]
    for line in (*notes, *lines):
        print_line(line) if form == "table" else say(ctx, line)


def save(texts: Mapping[str, str], *, force: bool) -> dict[str, int]:
    """Write files, all or none; the bytes of each by its path.

    Raises:
        UsageError: a file exists without `force`, or cannot be written.
    """
    from functools import partial

    from gradtool.io import atomic

    data = {path: text.encode() for path, text in texts.items()}
    atomic.write(
        [
            atomic.Output(atomic.target(path, force=force), partial(_fill, content))
            for path, content in data.items()
        ]
    )
    return {path: len(content) for path, content in data.items()}


def _fill(content: bytes, file: Any) -> None:
    file.write(content)


def _frontier(ctx: click.Context, opened: Opened) -> list[Planned]:
    from gradtool.budgets.frontier import frontier
    from gradtool.reports.progress import bar

    with bar(f"budgets of {opened.name}", color=color(ctx)):
        return frontier(opened.work)

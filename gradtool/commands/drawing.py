"""Reports to look at: `report --html`, `--svg` and `--trace`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gradtool.commands.plan_names import strategy_named
from gradtool.commands.plans import plan, show
from gradtool.workloads.names import KEEP

if TYPE_CHECKING:
    from gradtool.commands.output import Reporter
    from gradtool.commands.workloads import Opened
    from gradtool.reports.plans import PlansDocument
    from gradtool.workloads.planned import Planned

USUAL = ("mirror", "sqrt")
FILES = ("html", "svg", "trace")


def asked(options: Mapping[str, Any]) -> bool:
    """Whether a file is to be written; refused if it cannot be, before any work.

    Raises:
        UsageError: a file exists without `--force`, or its folder cannot be written to.
    """
    from gradtool.io import atomic

    paths = {f"--{kind}": options[kind] for kind in FILES if options[kind] is not None}
    if not paths:
        return False
    atomic.require_targets(paths, force=options["force"])
    return True


def write(reporter: Reporter, opened: Opened, form: str, options: Mapping[str, Any]) -> None:
    """Plan a model in every way asked for, write the files, and print the plans."""
    from gradtool.reports.html import html_page
    from gradtool.reports.page_data import Page
    from gradtool.reports.plans_svg import plans_svg
    from gradtool.reports.trace import planned_trace

    names = dict.fromkeys((KEEP, *(options["plan"] or USUAL)))
    plans = plan(reporter, opened, [strategy_named(name) for name in names])
    texts = {}
    page = Page(opened.name, plans.rows, opened.dims, opened.assumed)
    if options["html"] is not None:
        curve = _frontier(reporter, opened) if options["frontier"] else ()
        texts[options["html"]] = html_page(replace(page, frontier=curve))
    if options["svg"] is not None:
        texts[options["svg"]] = plans_svg(page)
    if options["trace"] is not None:
        drawn = [each.plan for each in plans.found]
        texts[options["trace"]] = planned_trace(drawn, opened.name)
    sizes = save(texts, force=options["force"])
    if form == "json":
        document: PlansDocument = {**plans.document(), "written": sizes}
        reporter.json(document)
    else:
        show(reporter, plans, form, sizes)


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


def _frontier(reporter: Reporter, opened: Opened) -> list[Planned]:
    from gradtool.workloads.budgets.frontier import frontier

    with reporter.bar(f"budgets of {opened.name}", total=1) as shown:
        opened.work.listener.point = shown.reach
        return frontier(opened.work)

"""The command `gradtool compare`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from gradtool.commands.call import Call, Choice, as_command
from gradtool.commands.options import (
    PATH,
    grad_options,
    kernel_options,
    size_options,
    table_format_option,
    top_option,
)
from gradtool.commands.plan_names import require
from gradtool.errors import UsageError
from gradtool.operators.kernel_sets import AUTO
from gradtool.workloads.names import KEEP

if TYPE_CHECKING:
    from gradtool.commands.call import Call
    from gradtool.commands.output import Reporter
    from gradtool.commands.workloads import Opened
    from gradtool.comparison import Comparison, Part, Snapshot
    from gradtool.workloads.plans import Strategy

SUFFIX = ".json"


@as_command("compare")
@click.argument("sources", metavar="BEFORE [AFTER]", nargs=-1, type=PATH)
@click.option("--plan", "plans", multiple=True, metavar="NAME|FILE",
              help="How to plan the models: once for both, or twice; a name is keep, reorder, "
                   "mirror, sqrt, segments, min-cut or optimal.  [default: keep]")  # fmt: skip
@click.option("--model", metavar="MODEL", type=PATH, help="The model that plans in files are of.")
@click.option("--by", type=Choice(["region", "operator", "tensor", "node"]),
              help="Show one table: where bytes of the peak moved, or which nodes run "
                   "again.")  # fmt: skip
@top_option("movements")
@kernel_options
@size_options
@grad_options
@table_format_option
def command(
    call: Call,
    /,
    *,
    sources: tuple[str, ...],
    by: Part | None,
    top: int,
    form: str,
    **options: Any,
) -> None:  # fmt: skip
    """Show what moved between two models, two plans or two reports.

    BEFORE and AFTER are models, plans (recompute -o FILE.json), reports (--format json) or
    baselines of gradtool check.  One model is compared with itself under two plans.
    """
    from gradtool import comparison
    from gradtool.reports.comparison import CompareDocument, comparison_json

    before, now = both_sides(call, sources, options)
    pairs = comparison.pairs(before, now)
    found = [comparison.compare(*pair) for pair in pairs]
    for sides, matched in zip((before, now), zip(*pairs, strict=True), strict=True):
        for name in comparison.alone(sides, matched):
            call.reporter.say(
                f"{name}: only {'before' if sides is before else 'now'}, not compared"
            )
    if form == "json":
        call.reporter.json(CompareDocument(comparisons=[*map(comparison_json, found)]))
        return
    for number, each in enumerate(found):
        if number:
            call.reporter.line("")
        _show(call.reporter, each, by, top, form)


def _show(reporter: Reporter, found: Comparison, by: Part | None, top: int, form: str) -> None:
    from gradtool.reports import comparison as reports

    if by is not None and by not in found.parts:
        raise UsageError(f"--by {by}: {'; '.join(found.unknown) or 'neither side knows it'}")
    if by is not None:
        reporter.table(reports.part_table(found, by, top), form)
        return
    if form == "csv":
        reporter.table(reports.totals_table(found), form)
        return
    for number, table in enumerate(reports.tables(found, top)):
        if number:
            reporter.line("")
        reporter.table(table, form)
    reporter.line("")
    for line in reports.closing_lines(found):
        reporter.line(line)


def both_sides(
    call: Call, sources: Sequence[str], options: Mapping[str, Any]
) -> tuple[list[Snapshot], list[Snapshot]]:
    """Snapshots before and now; one model is both, under two plans.

    Raises:
        UsageError: there are not two things to compare, or one cannot be read.
        DeviceError: a plan is searched for, and there is no native library.
    """
    plans = list(options["plans"])
    for plan in plans:
        require(plan)
    if len(sources) > 2 or len(plans) > 2:
        raise UsageError("two are compared: give BEFORE and AFTER, and --plan twice at most")
    files = [source.endswith(SUFFIX) for source in sources]
    if len(sources) < 2:
        return _one(call, sources, plans, options)
    models = [s for s, is_file in zip(sources, files, strict=True) if not is_file]
    if options["kernels"] == AUTO and len(models) < len(sources):
        options = {**options, **_kernels(s for s in sources if s not in models)}
    _require_use(sources, models, plans, options["model"])
    named = dict.fromkeys(filter(None, [options["model"], *models]))
    opened = dict(zip(named, _opened(call, list(named), options), strict=True)) if named else {}
    whose = opened.get(options["model"] or (models[0] if models else ""))
    chosen = plans * 2 if len(plans) == 1 else plans or [KEEP, KEEP]
    sides = [
        _file_snapshots(source, whose) if is_file else [_planned(opened[source], plan, said=plans)]
        for source, is_file, plan in zip(sources, files, chosen, strict=True)
    ]
    return sides[0], sides[1]


def _kernels(files: Iterable[str]) -> dict[str, Any]:
    """The options of the kernels that the first of some files is planned for, if there is one."""
    from gradtool.comparison.snapshots import read_snapshots
    from gradtool.workloads.names import options_for

    return next((options_for(found[0].kernels) for f in files if (found := read_snapshots(f))), {})


def _require_use(
    sources: Sequence[str], models: Sequence[str], plans: Sequence[str], model: str | None
) -> None:
    """Refuse options of no use to the files beside them.

    Raises:
        UsageError: two plans are, and there is one model; or a model is, and no file is a plan.
    """
    from gradtool.comparison.snapshots import is_plan_file

    if len(plans) > len(models) == 1:
        raise UsageError("one model is planned here: give --plan once")
    if model is not None and not any(is_plan_file(s) for s in sources if s not in models):
        raise UsageError(f"--model {model} is of plans in files, and none is one: leave it out")


def _one(
    call: Call, sources: Sequence[str], plans: Sequence[str], options: Mapping[str, Any]
) -> tuple[list[Snapshot], list[Snapshot]]:
    """One model under two plans, the first by default the one to keep everything."""
    if not plans or any(source.endswith(SUFFIX) for source in sources):
        raise UsageError("two are compared: give BEFORE and AFTER, or a model and --plan")
    (opened,) = _opened(call, sources, options)
    first, second = plans if len(plans) == 2 else (KEEP, plans[0])
    return [_planned(opened, first, said=plans)], [_planned(opened, second, said=plans)]


def _opened(call: Call, sources: Sequence[str], options: Mapping[str, Any]) -> list[Opened]:
    from gradtool.commands.discovery import Sizes
    from gradtool.commands.workloads import open_workloads

    return open_workloads(call, sources, sizes=Sizes.of(options), options=dict(options))


def _planned(opened: Opened, plan: str, *, said: Sequence[str]) -> Snapshot:
    """A model under a plan, which its name tells if plans were `said`."""
    from gradtool.comparison.snapshots import of_plan

    found = _strategy(plan)(opened.work)
    name = f"{opened.name} ({plan})" if said else opened.name
    return of_plan(name, found.plan, opened.work.kept)


def _file_snapshots(source: str, whose: Opened | None) -> list[Snapshot]:
    """Snapshots in a file; of a plan, with its model, all there is to know."""
    from gradtool.comparison.snapshots import is_plan_file, of_plan, read_snapshots

    if whose is None or not is_plan_file(source):
        return read_snapshots(source)
    found = _strategy(source)(whose.work)
    return [of_plan(source, found.plan, whose.work.kept)]


def _strategy(plan: str) -> Strategy:
    from gradtool.workloads.recompute_options import RecomputeOptions

    asked = (
        RecomputeOptions(plan=plan) if plan.endswith(SUFFIX) else RecomputeOptions(strategy=plan)
    )
    return asked.plans()

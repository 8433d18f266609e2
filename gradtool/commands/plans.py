"""Plans of a model, made in one way or several, and their tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from gradtool.commands.options import expand

if TYPE_CHECKING:
    from gradtool.commands.output import Reporter
    from gradtool.commands.workloads import Opened
    from gradtool.reports.plans import PlansDocument, Row
    from gradtool.workloads.planned import Planned
    from gradtool.workloads.plans import Strategy


@dataclass(frozen=True)
class Plans:
    """The plans of a model, the first of which keeps everything."""

    opened: Opened
    found: tuple[Planned, ...]

    @cached_property
    def rows(self) -> list[Row]:
        """Each beside keeping everything."""
        from gradtool.reports.plans import Row
        from gradtool.workloads.plans import extra_of, total_flops

        name, work = self.opened.name, self.opened.work
        flops = total_flops(work.kept.program)
        return [Row(name, each, flops, extra_of(work, each)) for each in self.found]

    def notes(self, *, verbose: bool) -> list[str]:
        """Remarks on the plans; with `verbose`, also on their search."""
        return [
            line
            for each in self.found
            for line in (*each.notes, *(each.details if verbose else ()))
        ]

    def document(self) -> PlansDocument:
        """The plans for machines."""
        from gradtool.reports.plans import plans_json

        return plans_json(self.rows, self.opened.dims, self.notes(verbose=True))


def plan(reporter: Reporter, opened: Opened, strategies: Iterable[Strategy]) -> Plans:
    """The plans of a model, one for each strategy."""
    chosen, found = list(strategies), []
    with reporter.bar(f"planning {opened.name}", total=len(chosen)) as shown:
        opened.work.listener.point = shown.reach
        for strategy in chosen:
            found.append(strategy(opened.work))
            shown.advance()
    return Plans(opened, tuple(found))


def show(reporter: Reporter, plans: Plans, form: str, written: Mapping[str, int]) -> None:
    """Print plans, their notes, and the files `written`, with the bytes of each."""
    from gradtool.reports.plans import plans_table
    from gradtool.text.units import format_bytes

    reporter.table(plans_table([plans.rows]), form)
    for note in plans.notes(verbose=reporter.verbose > 0):
        reporter.remark(note, form)
    for path, size in written.items():
        reporter.remark(f"wrote {path} ({format_bytes(size)})", form)


def explain(reporter: Reporter, opened: Opened, strategy: Strategy, tensor: str, form: str) -> None:
    """Say why a value is kept or computed again, and the cost of a recompute."""
    from gradtool.planning.recompute.explain import explain as facts_of
    from gradtool.reports import explanation
    from gradtool.workloads.groups import require_written
    from gradtool.workloads.plans import form_of

    require_written(opened.work, tensor)
    (found,) = plan(reporter, opened, [strategy]).found
    work = form_of(opened.work, found)
    facts = facts_of(work.program, tensor, decision=found.decision, schedule=found.schedule)
    if form == "json":
        reporter.json(explanation.document(facts))
        return
    for line in explanation.lines(facts):
        reporter.line(line)


def checkpoint_names(given: Sequence[str]) -> list[str]:
    """The values that `--checkpoints a,b` or `@file` names; a line of a file is one name."""
    names: list[str] = []
    for text in given:
        found = expand([text])
        names += found if text.startswith("@") else [n.strip() for n in text.split(",")]
    return [name for name in names if name]

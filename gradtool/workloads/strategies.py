"""Every way to plan a training graph, by name: what commands, reports and checks choose from.

None ever gives a plan that takes more than keeping everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

from gradtool.errors import UsageError
from gradtool.planning.recompute.mirrored import mirrored
from gradtool.planning.recompute.policy import POLICIES, Policy, marks
from gradtool.planning.recompute.segment_search import best_segments, sqrt_segments
from gradtool.planning.recompute.segments import Segmented, checkpointed, crossing_line
from gradtool.planning.schedule import Schedule
from gradtool.program import Program
from gradtool.text.units import format_bytes
from gradtool.text.words import count
from gradtool.workloads.groups import decided, require_written
from gradtool.workloads.loops import loops_of, taken
from gradtool.workloads.names import KEEP, LIGHT, REORDER
from gradtool.workloads.planned import Planned
from gradtool.workloads.plans import Strategy, planned
from gradtool.workloads.workload import Workload


def keep(work: Workload) -> Planned:
    """Keep everything, in the order of the file."""
    return planned(work, KEEP, _plain(work))


def reorder(work: Workload) -> Planned:
    """Keep everything, in the order of least peak that is found."""
    found = work.ordered
    least = f"proven: no order without recompute fits in less than {format_bytes(found.bound)}"
    notes, detail = [] if found.proven else [least], f"order: {found.how}"
    schedule = Schedule.of(found.order)
    return no_worse(work, planned(work, REORDER, schedule, notes=notes, details=[detail]))


def mirror(
    work: Workload,
    *,
    policy: Policy = POLICIES["mirror"],
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> Planned:
    """Echo's mirroring, as far as it lowers the peak.

    Raises:
        UsageError: a name in `keep` or `drop` matches nothing.
    """
    plans = [_mirrored(work, policy, keep, drop)]
    once = marks(work.nodes, keep, drop).keep
    form = loops_of(work).cheap(policy, once)
    if form is not None:
        with suppress(UsageError):  # a name of what such a loop stacked
            plans.append(of_form(_mirrored(form, policy, keep, drop), form))
    return least(plans)


def _mirrored(work: Workload, policy: Policy, keep: Sequence[str], drop: Sequence[str]) -> Planned:
    decision = decided(work, policy, keep, drop)
    found = mirrored(work.program, decision)
    may = count(found.decided, "node")
    note = f"mirror: {may} may be recomputed, {len(found.applied)} {_are(len(found.applied))}"
    plan = planned(work, "mirror", found.outcome.schedule, notes=[note], decision=decision)
    return no_worse(work, plan)


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def sqrt(work: Workload) -> Planned:
    """√n segments of equal bytes; of loops, turns that are taken again."""
    return _segments(work, "sqrt", sqrt_segments)


def segments(work: Workload) -> Planned:
    """As many segments of equal bytes as have the least peak; of loops, as `sqrt`."""
    return _segments(work, "segments", best_segments)


def checkpoints(work: Workload, *, names: Sequence[str]) -> Planned:
    """Segments between named values, also where keeping everything takes less.

    Raises:
        UsageError: a name is no forward value, or the loss does not depend on it.
    """
    for name in names:
        require_written(work, name)
    found = checkpointed(work.program, names)
    notes = [line for line in (crossing_line(found),) if line]
    return planned(work, "checkpoints", found.outcome.schedule, notes=notes)


def optimal(work: Workload) -> Planned:
    """The least peak found for no more extra work than one forward pass."""
    from gradtool.workloads.budgets.search import at_most

    return at_most(work, None)


def light(work: Workload) -> Planned:
    """The least peak found for no more extra work than 5 % of a step."""
    from gradtool.workloads.budgets.search import at_most

    return at_most(work, Fraction(1, 20), name=LIGHT)


def min_cut(work: Workload) -> Planned:
    """The same, with no more search than the cuts need."""
    from gradtool.workloads.budgets.search import CUTS, Search, at_most

    return at_most(work, None, Search(CUTS), name="min-cut")


def _segments(work: Workload, name: str, cut: Callable[[Program], Segmented]) -> Planned:
    def of(form: Workload) -> Planned:
        found = cut(form.program)
        notes = [f"{name}: {note}" for note in (count(len(found.ends), "segment"), *found.notes)]
        return no_worse(form, planned(form, name, found.outcome.schedule, notes=notes))

    form = loops_of(work).once
    return least([of(work), *(() if form is None else (of_form(of(form), form),))])


def of_form(found: Planned, form: Workload) -> Planned:
    """A plan of another form of a graph, as one of the graph."""
    notes = found.notes if found.schedule != _plain(form) else ()
    found = replace(found, form=form)
    return replace(found, notes=(*notes, *taken(found)))


def least(found: Sequence[Planned]) -> Planned:
    """The plan of least peak; of several, the first."""
    return min(found, key=lambda each: each.peak)


def no_worse(work: Workload, found: Planned) -> Planned:
    """The plan, or keeping everything under its name where the arena is no smaller."""
    kept = planned(work, found.name, _plain(work))
    if found.peak < kept.peak:
        return found
    notes = found.notes
    if found.schedule != kept.schedule:
        notes = (*notes, f"{found.name}: the arena would be no smaller, so everything is kept")
    return replace(kept, notes=notes, decision=found.decision, details=found.details)


def _plain(work: Workload) -> Schedule:
    return Schedule.of(range(len(work.program.steps)))


STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        KEEP: keep,
        REORDER: reorder,
        "mirror": mirror,
        "sqrt": sqrt,
        "segments": segments,
        "min-cut": min_cut,
        "optimal": optimal,
    }
)

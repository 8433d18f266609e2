"""Schedules repaired within a budget: for tight budgets, which the descents do not reach."""

from __future__ import annotations

from collections.abc import Sequence

from gradtool.planning.recompute.segment_search import segment_schedules
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.local.anneal import rank
from gradtool.planning.search.repair import Repair
from gradtool.planning.search.timeline import Timeline
from gradtool.planning.search.work_bound import least_budget

_DEPTHS = 4


def repaired(
    work: CostModel, budget: int, start: Sequence[int], limit: int, *, enough: int, seed: int
) -> Timeline:
    """The cheapest schedule within a budget to which repairs lead; if there is none, the lowest.

    They begin where nothing runs again, and at the places of `start`, than which the schedule is
    never worse.  If no repair ends within the budget, one begins at segments, and some aim lower:
    what then has the least peak may fit.  Of `limit` each has a share; the rest goes into kicks.
    """
    search = Repair(work, budget, limit, enough)
    plain = range(len(work.reads))
    best: Timeline | None = None
    for places in (plain, start):
        found = _fitted(search, search.weigh(places))
        if found is not None:
            best = found if best is None else min(best, found, key=lambda line: line.extra)
        if best is not None and search.is_done(best):
            return best
    if best is None:
        best = _fitted(search, _segments(search)) or _from_below(search, plain)
    return search.lowest if best is None else search.kick(best, seed)


def _fitted(search: Repair, start: Timeline) -> Timeline | None:
    """A start repaired and trimmed, at half of what is left of the limit."""
    rest = search.left - search.left // 2
    search.left -= rest
    found = search.fit(start)
    trimmed = None if found is None else search.trim(found)
    search.left += rest
    return trimmed


def _segments(search: Repair) -> Timeline:
    """The segments that take least again within the budget; if none fit, those of least peak."""
    work = search.work
    place = {step: p for p, step in enumerate(work.order)}
    known = [search.weigh(range(len(work.reads)))]
    known += [
        search.weigh([place[step] for step in schedule.order])
        for schedule in segment_schedules(work.program)
        if all(work.repeatable[place[step]] for step in schedule.recomputed)
    ]
    return min(known, key=lambda line: rank(line.peak, line.extra, search.budget))


def _from_below(search: Repair, plain: Sequence[int]) -> Timeline | None:
    """What fits into the budget of the schedules found on the way to lower ones."""
    work, budget = search.work, search.budget
    least = least_budget(work)
    for depth in range(1, _DEPTHS + 1):
        share = search.left // (_DEPTHS + 2 - depth)
        lower = Repair(work, budget - (budget - least) * depth // _DEPTHS, share)
        lower.fit(lower.weigh(plain))
        search.left -= share - lower.left
        found = search.weigh(lower.lowest.places)
        if found.peak <= budget:
            return search.trim(found)
    return None

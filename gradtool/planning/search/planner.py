"""The least extra work with which a program fits into a budget, and how little it could be.

Minimum cuts and an integer programme say what to keep where memory pinches most (`certificate`); a
local search turns that into schedules and improves them (`descent`); another changes their order
too, for budgets that are tight (`repaired`); what is not proven optimal is annealed, and improved
window by window where that is asked for (`finished`); the simulator has the last word.  Everything
stops on counted work, so the same question has the same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gradtool.errors import OverBudget
from gradtool.planning.orders.best import best_order
from gradtool.planning.schedule import Schedule
from gradtool.planning.search.certificate import Certificate, certificates
from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.descent import MANY, Descent, Found
from gradtool.planning.search.local.anneal import Polished, rank
from gradtool.planning.search.local.finish import finished, require
from gradtool.planning.search.repair import Repair
from gradtool.planning.search.starts import first
from gradtool.planning.search.tight import repaired
from gradtool.planning.search.work_bound import least_budget
from gradtool.program import Program

_LIMIT = 3_500_000


def thorough(steps: int) -> float:
    """The least effort at which so many steps are searched thoroughly."""
    return (MANY * steps + 1) / _LIMIT


@dataclass(frozen=True)
class Answer:
    """A schedule within a budget.

    `peak` and `budget` are in bytes.  `extra`, `bound` and `total` are in units of cost, FLOPs if
    no others were given: what runs again, what no schedule can do without, and one step without
    recompute.  `which_bound` says what proves the bound, `how` where the schedule comes from.
    """

    schedule: Schedule
    budget: int
    peak: int
    extra: int
    bound: int
    total: int
    which_bound: str
    how: str

    @property
    def gap(self) -> int:
        """Work between the schedule and the bound; 0 if the schedule is proven optimal."""
        return self.extra - self.bound

    def percent(self, work: int) -> float:
        """Work in % of one step without recompute."""
        return 100.0 * work / self.total if self.total else 0.0


def cheapest(
    program: Program,
    budget: int,
    context: SearchContext = SearchContext(),  # noqa: B008 - frozen
    *,
    order: Sequence[int] | None = None,
) -> Answer:
    """The cheapest schedule found whose peak is at most `budget` bytes.

    The search begins with the steps in `order`; if it is None, in the program's order or, where
    that needs less memory, in the best one found.  The effort is that of search and certificate; a
    reason to stop ends the annealing, and the windows, early.

    Raises:
        GradtoolError: OR-tools is asked for and not installed.
        OverBudget: no schedule was found, or it is proven that there is none.
    """
    require(context.solver)
    work = CostModel(program, context.costs, order)
    plain = Found({}, work.weigh({}))
    if plain.weighed.peak > budget and order is None:
        work, plain = _reordered(work, plain, context)
    if plain.weighed.peak <= budget:
        return _answer(work, budget, plain, Certificate(0, "nothing runs again"), "order")
    search = Descent(work, budget, int(_LIMIT * context.effort))
    found, how, strongest = _searched(search, plain, context)
    if found is None:
        found, how = _lowest(search), "descent to the least peak"
    best = _answer(work, budget, found, strongest, how)
    if best.peak <= budget and best.extra <= search.least_extra:
        return best
    if search.is_thorough:
        best = _repaired(search, best, context)
        if best.peak <= budget and best.extra <= search.least_extra:
            return best
    start, enough = best.schedule.order, search.least_extra
    for name, polished in finished(program, start, budget, context, enough=enough):
        best = _improved(best, polished, name)
    if best.peak > budget:
        least, order = least_budget(work), best.schedule.order
        raise OverBudget(budget, best.peak, least, proven=False, order=order)
    return best


def _reordered(work: CostModel, plain: Found, context: SearchContext) -> tuple[CostModel, Found]:
    """The program in the best order found, or as it is where that needs no less."""
    ordered = best_order(work.program, effort=max(int(context.effort), 1))
    if ordered.peak >= plain.weighed.peak:
        return work, plain
    work = CostModel(work.program, context.costs, ordered.order)
    return work, Found({}, work.weigh({}))


def _searched(
    search: Descent, plain: Found, context: SearchContext
) -> tuple[Found | None, str, Certificate]:
    """The best schedule of the descents, where it comes from, and the strongest certificate."""
    best, how, strongest = None, "", Certificate(0, "none")
    for certificate in certificates(search.work, search.budget, plain.weighed, context.effort):
        if certificate is None:
            raise _impossible(search)
        strongest = max(strongest, certificate, key=lambda c: c.bound)
        search.enough = strongest.bound
        better, start = first(search, certificate, best)
        if better is not best:
            best, how = better, start
        if best is not None and search.is_done(best):
            break
    if best is None or not search.is_thorough:
        return best, how, strongest
    kicked = search.kick(best, context.seed)
    return kicked, how if kicked is best else f"{how}, then local search", strongest


def _impossible(search: Descent) -> OverBudget:
    """The error of a budget into which nothing fits, with the least peak that is found instead."""
    work = search.work
    least = least_budget(work)
    repair = Repair(work, least, _LIMIT // 10)
    known = repair.weigh(_lowest(search).weighed.places)
    if search.is_thorough:
        repair.fit(known)
    order = work.schedule(repair.lowest.places).order
    return OverBudget(search.budget, repair.lowest.peak, least, proven=True, order=order)


def _improved(best: Answer, found: Polished, name: str) -> Answer:
    """The answer, or what a stage made of it."""
    if found.rank(best.budget) >= rank(best.peak, best.extra, best.budget):
        return best
    schedule, how = Schedule.of(found.order), f"{best.how}, then {name}"
    return replace(best, schedule=schedule, peak=found.peak, extra=found.extra, how=how)


def _repaired(search: Descent, best: Answer, context: SearchContext) -> Answer:
    """The answer, or what repairs find: with half the effort where the answer fits."""
    work, budget = search.work, best.budget
    place = {step: p for p, step in enumerate(work.order)}
    start = [place[step] for step in best.schedule.order]
    limit = int(context.effort * _LIMIT) // (2 if best.peak <= budget else 1)
    line = repaired(work, budget, start, limit, enough=search.least_extra, seed=context.seed)
    if rank(line.peak, line.extra, budget) >= rank(best.peak, best.extra, budget):
        return best
    schedule, how = work.schedule(line.places), f"{best.how}, then repair"
    return replace(best, schedule=schedule, peak=line.peak, extra=line.extra, how=how)


def frontier(
    program: Program,
    budgets: Iterable[int],
    context: SearchContext = SearchContext(),  # noqa: B008 - frozen
    *,
    order: Sequence[int] | None = None,
) -> list[Answer]:
    """The cheapest schedules for several budgets, in increasing order; unreached ones are left out.

    Each budget has the cheapest of all schedules found that fit into it, of equals the one of least
    peak: work never rises with the budget and the peak never falls.
    """
    found: list[Answer] = []
    for budget in sorted(set(budgets)):
        try:
            found.append(cheapest(program, budget, context, order=order))
        except OverBudget:
            continue
    return [_best_within(answer, found) for answer in found]


def _best_within(answer: Answer, found: Sequence[Answer]) -> Answer:
    fits = [a for a in found if a.peak <= answer.budget]
    best = min(fits, key=lambda a: (a.extra, a.peak))
    return replace(best, budget=answer.budget, bound=answer.bound, which_bound=answer.which_bound)


def _lowest(search: Descent) -> Found:
    """What has the least peak of all that was tried, or that a descent as deep as it goes finds."""
    work = search.work
    lower = Descent(work, least_budget(work), _LIMIT // 10)
    lower.fit(lower.weigh({}))
    known = [found for found in (search.lowest, lower.lowest) if found is not None]
    lowest = min(known, key=lambda found: found.weighed.peak)
    if lowest.weighed.peak > search.budget:
        return lowest
    return Descent(work, search.budget, _LIMIT // 10, search.enough).trim(lowest)


def _answer(
    work: CostModel, budget: int, found: Found, certificate: Certificate, how: str
) -> Answer:
    schedule = work.schedule(found.weighed.places)
    return Answer(
        schedule=schedule,
        budget=budget,
        peak=work.simulator.peak(schedule.order),
        extra=found.extra,
        bound=certificate.bound,
        total=work.total,
        which_bound=certificate.how,
        how=how,
    )

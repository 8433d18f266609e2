"""The least extra work with which a program fits into a budget, and how little it could be.

Minimum cuts and an integer programme say what to keep where memory pinches most (`certificate`); a
local search turns that into schedules and improves them (`descent`); the simulator has the last
word.  Everything stops on counted work, so the same question has the same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gradtool.errors import OverBudget
from gradtool.planning.certificate import Certificate, certificates
from gradtool.planning.descent import Descent, Found
from gradtool.planning.order import best_order
from gradtool.planning.rework import Rework
from gradtool.planning.schedule import Schedule
from gradtool.planning.starts import first
from gradtool.planning.work_bound import least_budget
from gradtool.program import Program

_LIMIT = 3_500_000


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
    *,
    effort: float = 1.0,
    seed: int = 0,
    costs: Sequence[int | None] | None = None,
    order: Sequence[int] | None = None,
) -> Answer:
    """The cheapest schedule found whose peak is at most `budget` bytes.

    Steps first run in `order`, or later if nobody needs them yet; if it is None, in the program's
    order or, where that needs less memory, in the best one found.  `costs` replaces the steps'
    FLOPs.  `effort` scales the counted work of search and certificate.

    Raises:
        OverBudget: no schedule was found, or it is proven that there is none.
    """
    work = Rework(program, costs, order)
    plain = Found({}, work.weigh({}))
    if plain.weighed.peak > budget and order is None:
        ordered = best_order(program, effort=max(int(effort), 1))
        if ordered.peak < plain.weighed.peak:
            work = Rework(program, costs, ordered.order)
            plain = Found({}, work.weigh({}))
    if plain.weighed.peak <= budget:
        return _answer(work, budget, plain, Certificate(0, "nothing runs again"), "order")
    search = Descent(work, budget, int(_LIMIT * effort))
    best, how, strongest = None, "", Certificate(0, "none")
    for certificate in certificates(work, budget, plain.weighed, effort):
        if certificate is None:
            raise _over(search, proven=True)
        strongest = max(strongest, certificate, key=lambda c: c.bound)
        search.enough = strongest.bound
        better, start = first(search, certificate, best)
        if better is not best:
            best, how = better, start
        if best is not None and search.is_done(best):
            break
    if best is None:
        raise _over(search, proven=False)
    kicked = search.kick(best, seed) if search.is_thorough else best
    if kicked is not best:
        best, how = kicked, f"{how}, then local search"
    return _answer(work, budget, best, strongest, how)


def frontier(
    program: Program,
    budgets: Iterable[int],
    *,
    effort: float = 1.0,
    seed: int = 0,
    costs: Sequence[int | None] | None = None,
    order: Sequence[int] | None = None,
) -> list[Answer]:
    """The cheapest schedules for several budgets, in increasing order; unreached ones are left out.

    Each budget has the cheapest of all schedules found that fit into it, of equals the one of least
    peak: work never rises with the budget and the peak never falls.
    """
    found: list[Answer] = []
    for budget in sorted(set(budgets)):
        try:
            found.append(
                cheapest(program, budget, effort=effort, seed=seed, costs=costs, order=order)
            )
        except OverBudget:
            continue
    return [_best_within(answer, found) for answer in found]


def _best_within(answer: Answer, found: Sequence[Answer]) -> Answer:
    fits = [a for a in found if a.peak <= answer.budget]
    best = min(fits, key=lambda a: (a.extra, a.peak))
    return replace(best, budget=answer.budget, bound=answer.bound, which_bound=answer.which_bound)


def _over(search: Descent, *, proven: bool) -> OverBudget:
    """The error that a budget is not reached, with the least peak that a descent finds."""
    least = least_budget(search.work)
    lower = Descent(search.work, least, _LIMIT // 10)
    lower.fit(lower.weigh({}))
    reached = min(p for p in (search.lowest, lower.lowest) if p is not None)
    return OverBudget(search.budget, reached, least, proven=proven)


def _answer(work: Rework, budget: int, found: Found, certificate: Certificate, how: str) -> Answer:
    schedule = work.schedule(found.weighed)
    peak = work.simulator.peak(schedule.order)
    return Answer(
        schedule=schedule,
        budget=budget,
        peak=peak,
        extra=found.extra,
        bound=certificate.bound,
        total=work.total,
        which_bound=certificate.how,
        how=how,
    )

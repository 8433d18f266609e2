"""The least extra work with which a program fits into a budget, and how little it could be.

The Pareto frontier has schedules; minimum cuts and an integer programme bound what every schedule
computes again (`certificate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradtool.errors import OverBudget
from gradtool.planning.orders.best import best_order
from gradtool.planning.pareto.budget_points import BudgetPoints
from gradtool.planning.pareto.frontier import Frontier
from gradtool.planning.schedule import Schedule
from gradtool.planning.search.certificate import Certificate, certificates
from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.cost_model import CostModel
from gradtool.program import Program


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

    The steps first run in `order`; if it is None, in the best order found.

    Raises:
        OverBudget: no schedule was found, or it is proven that there is none.
    """
    return _within(_frontier(program, context, order), budget, context)


def _frontier(program: Program, context: SearchContext, order: Sequence[int] | None) -> Frontier:
    if order is None:
        order = best_order(program, effort=max(int(context.effort), 1)).order
    return Frontier(BudgetPoints(CostModel(program, context.costs, order), context))


def _within(frontier: Frontier, budget: int, context: SearchContext) -> Answer:
    work, found = frontier.points.work, frontier.within(budget)
    if found is None:
        reached = min(frontier.points.states, key=lambda s: (s.peak, s.extra))
        low, order = frontier.points.low, work.schedule(reached.places).order
        raise OverBudget(budget, reached.peak, low, proven=budget < low, order=order)
    strongest = Certificate(0, "none" if found.extra else "nothing runs again")
    for certificate in certificates(work, budget, context.effort) if found.extra else ():
        if certificate is not None:
            strongest = max(strongest, certificate, key=lambda c: c.bound)
        if found.extra <= strongest.bound:
            break
    bound, how = min(strongest.bound, found.extra), "search" if found.extra else "order"
    schedule = work.schedule(found.places)
    return Answer(schedule, budget, found.peak, found.extra, bound, work.total, strongest.how, how)

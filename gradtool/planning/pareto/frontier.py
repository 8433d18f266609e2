"""The Pareto frontier of memory and work, whose schedules answer every question of a program.

Between two points a question halves the range, a few times: each half-way budget is a point of its
own, which depends on the points around it alone.  No schedule is taken there of less work than the
answer to a question with more room: so a budget never costs more work than a smaller one, whatever
was asked, and in whichever order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import cached_property

from gradtool.planning.pareto.budget_points import BudgetPoints
from gradtool.planning.pareto.initial_solutions import price
from gradtool.planning.pareto.walk import State

_AIMS = 3  # searches between two points, the later ones with less room
_LESS = 8  # the part of the way to the point below by which there is less room, at least


def peak_of(state: State) -> int:
    """The peak of a schedule, in bytes."""
    return state.peak


class Frontier:
    """The answers for all budgets, and for all amounts of work.

    `size` is a schedule's size, in bytes; no less than its peak.
    """

    def __init__(self, points: BudgetPoints, size: Callable[[State], int] = peak_of) -> None:
        self.points = points
        self.size = size
        self._sizes: dict[int, int] = {}
        self._halves: dict[int, list[State]] = {}

    def within(self, budget: int) -> State | None:
        """The schedule of least recomputed work within a budget; None if none was found."""
        found = list(self.points.states)
        high, low = self._deepen(self._above(budget, found), found)
        for _ in range(self.points.halvings):
            half = (low + high) // 2
            if not low < half < high:
                break
            self._half(half, high, low, found)
            if half <= budget:
                low = half
            elif self._cheapest(found, half) is None:
                break
            else:
                high = half
        return self._cheapest(found, budget)

    def at_most(self, work: int) -> State:
        """The schedule of least size with at most so much recomputed work."""
        found = list(self.points.states)
        budget = self.size(self._least(found, work)) - 1
        high, low = self._deepen(self._above(budget, found), found)
        for _ in range(self.points.halvings):
            half = (low + high) // 2
            if not low < half < high:
                break
            self._half(half, high, low, found)
            best = self._cheapest(found, half)
            if best is not None and best.extra <= work:
                high = half
            else:
                low = half
        return self._least(found, work)

    def _above(self, budget: int, found: list[State]) -> int:
        """The first point above a budget with a schedule, or else the next one."""
        i = min(max(bisect_right(self._rising, budget), 1), self.points.count)
        while i > 1 and self._point(i - 1) > budget:
            i -= 1
        above = range(i, self.points.count + 1)
        return next((j for j in above if self._cheapest(found, self._point(j)) is not None), i)

    @cached_property
    def _rising(self) -> list[int]:
        """The points from the lowest up, with an allowance for fragmentation.

        It is nothing at the top, and grows evenly to the fragmentation at the least peak.
        """
        least = min(self.points.states, key=lambda s: (s.peak, s.extra))
        wasted, count = self.size(least) - least.peak, self.points.count
        budgets = enumerate(self.points.budgets)
        return [budget + wasted * k // count for k, budget in budgets][::-1]

    def _point(self, i: int) -> int:
        """A point, the lowest is 0, as a size: no less than that of the cheapest schedule there.

        So a question that is answered by this schedule looks for others below the point.
        """
        if i not in self._sizes:
            budget = self.points.budgets[-1 - i]
            fits = (state for state in self.points.states if state.peak <= budget)
            own = min(fits, key=price, default=None)
            self._sizes[i] = max(self._rising[i], 0 if own is None else self.size(own))
        return self._sizes[i]

    def _deepen(self, i: int, found: list[State]) -> tuple[int, int]:
        """A point and the one below, after adding the schedules found there as halves are searched.

        Questions on both sides of a point know these.  Those further up do not, and none of them
        computes less than the known ones of the point above.
        """
        known = list(self.points.states)
        for j in (i, i - 1):
            if not 0 < j < self.points.count:
                continue
            point = self._point(j)
            if point not in self._halves:
                around = self._point(j + 1), self._point(j - 1)
                self._halves[point] = self._between(point, *around, known)
            found += self._halves[point]
        return self._point(i), self._point(i - 1)

    def _half(self, budget: int, above: int, below: int, found: list[State]) -> None:
        """Add the schedules of a point between two points to those found.

        They may be larger than the point, if they are no larger than that above.  None that
        computes less than the one with the room above, or than the one with that below: other
        questions do not pass here.
        """
        if budget not in self._halves:
            self._halves[budget] = self._between(budget, above, below, found)
        found += self._halves[budget]

    def _between(self, budget: int, above: int, below: int, found: list[State]) -> list[State]:
        """The cheapest schedules that fit above, down to the first taken to fit the point itself.

        Where none of those found fits it, others are looked for with as much less room as these
        lack, or an eighth of the way to the point below.  Nothing is looked for where nothing fits
        above: a question with that room would not know of it.
        """
        high, low = self._cheapest(found, above), self._cheapest(found, below)
        if high is None:
            return []
        taken: list[State] = []
        aim = budget
        for _ in range(_AIMS):
            lacking, fits = budget, False
            states = self.points.between(aim, high, self._cheapest(found, aim), found)
            for state in states if aim == budget else states[:1]:
                size = self.size(state)
                is_less = size <= below and (low is None or state.extra < low.extra)
                if size <= above and state.extra >= high.extra and not is_less:
                    taken.append(state)
                    if size <= budget:
                        return taken
                fits |= size <= budget
                lacking = min(lacking, size - budget)
            if fits:
                break
            aim -= max(lacking, (budget - below) // _LESS)
            if aim <= below:
                break
        return taken

    def _cheapest(self, found: list[State], budget: int) -> State | None:
        """Of some schedules the one of least recomputed work within a budget."""
        fits = sorted((s for s in found if s.peak <= budget), key=price)
        return next((s for s in fits if self.size(s) <= budget), None)

    def _least(self, found: list[State], work: int) -> State:
        """Of some schedules the one of least size with at most so much recomputed work."""
        fits = sorted({s for s in found if s.extra <= work}, key=lambda s: (s.peak, s.extra))
        best = fits[0]
        for state in fits[1:]:
            if state.peak > self.size(best):
                break
            best = min(best, state, key=lambda s: (self.size(s), s.extra))
        return best

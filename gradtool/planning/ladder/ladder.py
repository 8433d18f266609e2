"""One ladder of budgets: every question about a program is answered by the schedules on it.

Between two rungs a question halves the range, a few times: each half-way budget is a rung of its
own, which depends on the rungs around it alone.  No schedule is taken there that computes less than
the answer to a question with more room: so a budget never costs more work than a smaller one,
whatever was asked, and in whichever order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from gradtool.planning.ladder.rungs import Rungs
from gradtool.planning.ladder.starts import price
from gradtool.planning.ladder.walk import State

HALVINGS = 5  # between two rungs


def peak_of(state: State) -> int:
    """The bytes of a schedule that are alive at once."""
    return state.peak


class Ladder:
    """The answers for all budgets, and for all amounts of work.

    `size` is what a schedule takes, in bytes; no less than its peak.
    """

    def __init__(self, rungs: Rungs, size: Callable[[State], int] = peak_of) -> None:
        self.rungs = rungs
        self.size = size
        self._halves: dict[int, State | None] = {}

    def within(self, budget: int) -> State | None:
        """The schedule within a budget that computes least again; None if none was found."""
        found = list(self.rungs.states)
        high, low = self._around(budget)
        for _ in range(HALVINGS):
            half = (low + high) // 2
            if not low < half < high:
                break
            state = self._half(half, high, low, found)
            if half <= budget:
                low = half
            elif state is None:
                break
            else:
                high = half
        return self._cheapest(found, budget)

    def at_most(self, work: int) -> State:
        """The schedule of least size that computes no more than so much again."""
        found = list(self.rungs.states)
        high, low = self._around(self.size(self._least(found, work)) - 1)
        for _ in range(HALVINGS):
            half = (low + high) // 2
            if not low < half < high:
                break
            state = self._half(half, high, low, found)
            best = self._cheapest(found, half)
            if best is not None and best.extra <= work:
                high = half
            elif state is None:
                break
            else:
                low = half
        return self._least(found, work)

    def _around(self, budget: int) -> tuple[int, int]:
        """The rungs around a budget: above it, and not above it."""
        rising = self.rungs.budgets[::-1]
        i = min(max(bisect_right(rising, budget), 1), len(rising) - 1)
        return rising[i], rising[i - 1]

    def _half(self, budget: int, above: int, below: int, found: list[State]) -> State | None:
        """The schedule of a rung between two rungs, which is added to what was found.

        It may be larger than the rung, if it is no larger than that above.  None that computes
        less than what has the room above, or than what has no more than that below: other
        questions do not pass here.
        """
        if budget not in self._halves:
            self._halves[budget] = self._between(budget, above, below, found)
        state = self._halves[budget]
        if state is not None:
            found.append(state)
        return state

    def _between(self, budget: int, above: int, below: int, found: list[State]) -> State | None:
        high, low = self._cheapest(found, above), self._cheapest(found, below)
        start = high or min(found, key=lambda s: (s.peak, s.extra))
        state = self.rungs.search(budget, start, self._cheapest(found, budget), found)
        if state is None or self.size(state) > above:
            return None
        if high is not None and state.extra < high.extra:
            return None
        if self.size(state) <= below and (low is None or state.extra < low.extra):
            return None
        return state

    def _cheapest(self, found: list[State], budget: int) -> State | None:
        """Of some schedules the one within a budget that computes least again."""
        fits = sorted((s for s in found if s.peak <= budget), key=price)
        return next((s for s in fits if self.size(s) <= budget), None)

    def _least(self, found: list[State], work: int) -> State:
        """Of some schedules the one of least size that computes no more than so much again."""
        fits = sorted({s for s in found if s.extra <= work}, key=lambda s: (s.peak, s.extra))
        best = fits[0]
        for state in fits[1:]:
            if state.peak > self.size(best):
                break
            best = min(best, state, key=lambda s: (self.size(s), s.extra))
        return best

"""Schedules improved window by window: everything outside stays, CP-SAT finds better contents.

First come windows of which every step may move, one after the other; then longer ones around steps
that run again, in which only some may.  The simulator says whether what was found is better.

Source: large neighbourhood search (Shaw 1998, doi:10.1007/3-540-49481-2_30) with retention
intervals as neighbourhoods: see `retention`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from gradtool.planning.schedule import Schedule, pruned
from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.local.anneal import Polished
from gradtool.planning.search.local.openings import Opening, all_from, dense, gains, some_around
from gradtool.planning.search.local.retention import Retention
from gradtool.planning.search.local.surroundings import Surroundings
from gradtool.planning.simulate import Simulator
from gradtool.program import Program

_WINDOWS = 60  # of either kind, at effort 1
_VAIN = 30  # of a kind in a row in vain, after which it ends, at effort 1
_MORE = 32  # steps that may come into a window
_TIME = 0.15  # CP-SAT's deterministic time for a window


def windowed(
    program: Program,
    start: Sequence[int],
    budget: int,
    context: SearchContext = SearchContext(),  # noqa: B008 - frozen
    *,
    enough: int = 0,
) -> Polished:
    """The cheapest schedule found within `budget` bytes, from a start that need not fit.

    It is never worse than the start.  The search ends where the extra work is `enough`, a window of
    the whole program is proven optimal, or after as many windows, or as many in vain, as the effort
    allows; those that were solved are the `moves` of the answer.
    """
    priced, stop = context.priced(program), context.stop
    search = _Search(Simulator(program), start, budget, priced, stop)
    first = search.polished()
    most, patience = int(_WINDOWS * context.effort), int(_VAIN * context.effort)
    for openings in (search.dense(), search.sparse(context.seed)):
        vain = 0
        for opening in islice(openings, most):
            if stop() or search.is_done(enough) or vain > patience:
                break
            vain = 0 if search.improve(opening) else vain + 1
    first = replace(first, moves=search.solved)
    return min(first, search.polished(), key=lambda p: p.rank(budget))


class _Search:
    """The best schedule so far: its surroundings, bytes above the budget and extra work.

    `is_optimal` says whether a window of the whole program was proven optimal, `solved` how many
    windows were solved; `in_vain` is what was asked without an improvement.
    """

    def __init__(
        self,
        simulator: Simulator,
        start: Sequence[int],
        budget: int,
        costs: Sequence[int | None],
        stop: Callable[[], bool],
    ) -> None:
        self.simulator, self.budget, self.costs, self.stop = simulator, budget, costs, stop
        self.solved = 0
        self.in_vain: set[Hashable] = set()
        self.is_optimal = False
        order = self._pruned(start)
        self.around = Surroundings(simulator, order, costs)
        self.rank = self._rank(order)

    def is_done(self, enough: int) -> bool:
        """Whether nothing better is to be found, or it is good enough."""
        return self.is_optimal or self.rank <= (0, enough)

    def polished(self) -> Polished:
        """The schedule, after the windows that were solved."""
        peak = max(self.around.profile, default=self.simulator.fixed)
        return Polished(self.around.order, peak, self.rank[1], self.solved)

    def improve(self, opening: Opening) -> bool:
        """Take other contents of a window that are no worse, if some are found; are they better?

        What was asked in vain is not asked again.
        """
        begin, end, free = opening
        order, before = self.around.order, self.rank
        window = self.around.window(begin, end, self.budget, free, _MORE)
        if window.question in self.in_vain:
            return False
        self.solved += 1
        found = Retention(self.around, window).improved(_TIME, self.stop)
        if found is not None and found.steps != window.steps:
            self._take((*order[:begin], *found.steps, *order[end:]))
        if self.rank == before:
            self.in_vain.add(window.question)
        whole = (begin, end) == (0, len(order)) and not window.frozen
        self.is_optimal = whole and window.fits and found is not None and found.proven
        return self.rank < before

    def dense(self) -> Iterator[Opening]:
        """Windows in which all steps move."""
        for begin in dense(gains(self.around, self.budget)):
            if begin < len(self.around.order):
                yield all_from(self.around, begin)

    def sparse(self, seed: int) -> Iterator[Opening]:
        """Windows without end, in which some steps move, around random places with some gain."""
        random = np.random.default_rng(seed)
        while centres := [p for p, gain in enumerate(gains(self.around, self.budget)) if gain]:
            yield some_around(self.around, centres[random.integers(len(centres))], random)

    def _pruned(self, order: Sequence[int]) -> tuple[int, ...]:
        """An order without what nobody reads."""
        return pruned(self.simulator.program, Schedule.of(order)).order

    def _take(self, order: Sequence[int]) -> None:
        """Go on with a schedule if it is no worse."""
        order = self._pruned(order)
        rank = self._rank(order)
        if rank <= self.rank:
            self.around, self.rank = Surroundings(self.simulator, order, self.costs), rank

    def _rank(self, order: Sequence[int]) -> tuple[int, int]:
        """Bytes above the budget, added up over all positions, then the extra work."""
        excess = sum(max(live - self.budget, 0) for live in self.simulator.profile(order))
        work = sum(self.costs[s] or 0 for s in order)
        return excess, work - sum(c or 0 for c in self.costs)

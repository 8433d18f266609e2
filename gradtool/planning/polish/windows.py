"""Schedules improved window by window: everything outside stays, CP-SAT finds better contents.

First come windows of which every step may move, one after the other; then longer ones around steps
that run again, in which only some may.  The simulator says whether what was found is better.

Source: large neighbourhood search (Shaw 1998, doi:10.1007/3-540-49481-2_30) with retention
intervals as neighbourhoods: see `retention`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from gradtool.planning.polish.anneal import Polished
from gradtool.planning.polish.retention import Retention
from gradtool.planning.polish.window import Surroundings
from gradtool.planning.schedule import Schedule, pruned
from gradtool.planning.simulate import Simulator
from gradtool.program import Program

_DENSE, _MORE = 64, 32  # positions of a window in which all move, and steps that may come in
_SPARSE, _FREE = 200, 40  # positions of a window in which some move, and how many do
_WINDOWS = 60  # in which some move, at effort 1
_TIME = 0.15  # CP-SAT's deterministic time for a window


def windowed(
    program: Program,
    start: Sequence[int],
    budget: int,
    *,
    costs: Sequence[int | None] | None = None,
    effort: float = 1.0,
    seed: int = 0,
    enough: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Polished:
    """The cheapest schedule found within `budget` bytes, from a start that need not fit.

    It is never worse than the start.  The search ends where the extra work is `enough`, `stop` says
    so, or after as many windows as `effort` allows; they are the `moves` of the answer.
    """
    search = _Search(program, start, budget, costs)
    first = search.polished(0)
    tried = 0
    for begin, end, free in search.windows(int(_WINDOWS * effort), seed):
        if stop() or (search.excess == 0 and search.extra <= enough):
            break
        search.improve(begin, end, free)
        tried += 1
    first = replace(first, moves=tried)
    return min(first, search.polished(tried), key=lambda p: p.rank(budget))


class _Search:
    """The best schedule so far: its surroundings, extra work and bytes above the budget."""

    def __init__(
        self,
        program: Program,
        start: Sequence[int],
        budget: int,
        costs: Sequence[int | None] | None,
    ) -> None:
        self.simulator, self.budget = Simulator(program), budget
        self.costs = [s.flops for s in program.steps] if costs is None else list(costs)
        self._take(self._around(start))

    def _around(self, order: Sequence[int]) -> Surroundings:
        """The surroundings of a schedule without what nobody reads."""
        steps = pruned(self.simulator.program, Schedule.of(order)).order
        return Surroundings(self.simulator, steps, self.costs)

    def _take(self, around: Surroundings) -> None:
        self.around = around
        self.excess, self.extra = self._rank(around)

    def _rank(self, around: Surroundings) -> tuple[int, int]:
        """Bytes above the budget, added up over all positions, then the extra work."""
        excess = sum(max(live - self.budget, 0) for live in around.profile)
        work = sum(self.costs[s] or 0 for s in around.order)
        return excess, work - sum(c or 0 for c in self.costs)

    def polished(self, tried: int) -> Polished:
        """The schedule, after so many windows."""
        peak = max(self.around.profile, default=self.simulator.fixed)
        return Polished(self.around.order, peak, self.extra, tried)

    def improve(self, begin: int, end: int, free: Collection[int]) -> None:
        """Take other contents of a window that are no worse, if some are found."""
        order = self.around.order
        window = self.around.window(begin, end, self.budget, free, _MORE)
        better = Retention(self.around, window).improved(_TIME)
        if better is not None and better != window.steps:
            around = self._around((*order[:begin], *better, *order[end:]))
            if self._rank(around) <= (self.excess, self.extra):
                self._take(around)

    def windows(self, most: int, seed: int) -> Iterator[tuple[int, int, Collection[int]]]:
        """Where windows begin and end and what may move there, `most` of either kind."""
        begins = range(0, len(self.around.order), _DENSE // 2)
        gains = {b: sum(self._gains(b, b + _DENSE)) for b in begins}
        for begin in sorted((b for b in begins if gains[b]), key=lambda b: (-gains[b], b))[:most]:
            end = min(begin + _DENSE, len(self.around.order))
            yield begin, end, self.around.order[begin:end]
        random = np.random.default_rng(seed)
        for _ in range(most):
            order = self.around.order
            centres = [p for p, gain in enumerate(self._gains(0, len(order))) if gain]
            if not centres:
                return
            centre = centres[random.integers(len(centres))]
            begin = max(min(centre - _SPARSE // 2, len(order) - _SPARSE), 0)
            end = min(begin + _SPARSE, len(order))
            yield begin, end, self._some(centre, begin, end, random)

    def _gains(self, begin: int, end: int) -> Iterator[int]:
        """What could be gained at positions: bytes above the budget, or the cost of a repeat."""
        around = self.around
        for p in range(begin, min(end, len(around.order))):
            step = around.order[p]
            over = max(around.profile[p] - self.budget, 0)
            yield over if self.excess else (around.begins[step] < p) * (self.costs[step] or 0)

    def _some(
        self, centre: int, begin: int, end: int, random: np.random.Generator
    ) -> Collection[int]:
        """Steps of a window: those that run repeatedly nearest to its centre, and random pairs."""
        around, order = self.around, self.around.order
        near = (order[p] for p in sorted(range(begin, end), key=lambda p: abs(p - centre)))
        again = dict.fromkeys(s for s in near if around.begins[s] < around.ends[s])
        free = dict.fromkeys([order[centre], *list(again)[: _FREE // 3]])
        most = min(_FREE, len(set(order[begin:end])))
        while len(free) < most:
            p = begin + int(random.integers(end - begin))
            free |= dict.fromkeys(order[p : min(p + 2, end)])
        return free

"""Multi-start search of schedules within one budget, of counted effort."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtool.planning.pareto.improve import kick, reach
from gradtool.planning.pareto.initial_solutions import Starts, price
from gradtool.planning.pareto.walk import Descent, State, Walk

_CUTS = 0.3  # of the effort of a search
_PATIENCE = 40
_FITTED, _KICKED = 16, 4  # parts of it that a narrowed cut has, to fit and to be improved
_BRIEF = 2  # the patience with that


class Seeking:
    """Searches on one walk.  A `share` is how many entries a search may look at."""

    def __init__(self, walk: Walk, starts: Starts, seed: int) -> None:
        self._walk, self._starts, self._seed = walk, starts, seed

    def within(
        self,
        budget: int,
        start: State,
        known: State | None,
        found: Sequence[State],
        share: int,
        branches: int = 1,
    ) -> list[State]:
        """The cheapest schedules found within a budget, which `known` fits; the best comes first.

        It begins at one with more room, `start`, and at others of those `found` so far; it goes on
        from so many of the results, each with its part of the effort left.
        """
        walk = self._walk
        fits = {known: None} if known else {}
        near: list[State] = []
        walk.left = share
        if self._fits(start, budget, ends=True):
            fits[walk.state] = None
        walk.left = share  # that was beside the search
        for begin in self._starts.of(budget, start, found, int(_CUTS * share)):
            if self._fits(begin, budget):
                fits[walk.state] = None
            else:
                near += (begin, walk.state)
            if walk.left <= share // 2:
                break
        random = np.random.default_rng((self._seed, budget))
        if not fits:
            if not reach(walk, budget, near, random):
                return []
            fits[walk.state] = None
        best, left = set[State](), walk.left
        for state in sorted(fits, key=price)[:branches]:
            walk.left = left // branches
            walk.go(state)
            walk.trim(budget)
            best.add(kick(walk, budget, random))
        return sorted(best, key=price)

    def from_cuts(self, budget: int, share: int, best: Sequence[State]) -> list[State]:
        """Schedules of narrowed cuts that compute less than the `best` known."""
        walk, found = self._walk, list[State]()
        random = np.random.default_rng((self._seed, budget, 2))
        worth = min((each.extra for each in best), default=None)
        for cut in self._starts.narrowed(budget, int(_CUTS * share), worth):
            walk.left = share // _FITTED
            walk.go(cut)
            if not walk.fit(budget, Descent(patience=_BRIEF)):
                continue
            walk.left = share // _KICKED
            walk.trim(budget)
            if all(price(walk.state) < price(each) for each in best):
                walk.left = share // _KICKED
                found.append(kick(walk, budget, random))
        return found

    def _fits(self, begin: State, budget: int, *, ends: bool = False) -> bool:
        """Whether the walk came from a schedule to one within a budget, then trimmed."""
        self._walk.go(begin)
        fits = self._walk.fit(budget, Descent(patience=_PATIENCE, ends=ends))
        if fits:
            self._walk.trim(budget)
        return fits

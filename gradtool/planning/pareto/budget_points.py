"""The points of a frontier: one schedule for each of many budgets, searched from the top down.

The points lie evenly between the peak without recompute and the lower bound of every schedule.
Each search begins at the cheapest schedule of the point above, and at those of minimum cuts and
segments; on the way up again, each begins at one of less memory.  Effort is counted in entries that
are looked at; nothing depends on the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import numpy as np

from gradtool.planning.pareto.improve import kick, reach
from gradtool.planning.pareto.initial_solutions import Starts, cheapest, price
from gradtool.planning.pareto.walk import Descent, State, Walk
from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.work_bound import least_budget

POINTS, POINTS_OF_MANY = 32, 16
_MANY = 1_000  # steps of a program with fewer points
_LOWEST = 3  # halvings towards the least point reached
_HALVINGS, _HALVINGS_OF_MANY = 5, 3  # between two points, for a question
_VERY_MANY = 2_000  # steps of a program with fewer of these
_LIMIT, _LIMIT_OF_MANY = 6_000_000, 1_100  # entries that are looked at; of many steps, for each
_PER_STEP = 60_000  # of few steps
_BETWEEN, _BRANCHES = 0.08, 3  # of all effort, and schedules gone on from, for a question
_LOOSENED, _LOOSENED_OF_MANY = 8, 2  # schedules of less memory, on the way up
_MISSED = 1  # points in a row that are passed over
_UPWARD = 0.5  # of the effort of a point, on the way up
_CUTS = 0.3  # of the effort of a search
_PATIENCE = 40
_FITTED, _KICKED = 16, 4  # parts of it that a narrowed cut has, to fit and to be improved
_BRIEF = 2  # the patience with that


def most_entries(steps: int) -> int:
    """The most entries looked at for the frontier of a program of so many steps, at effort 1."""
    return min(max(_LIMIT, _LIMIT_OF_MANY * steps), _PER_STEP * steps)


class BudgetPoints:
    """The schedules of a program at many budgets.

    Budgets are bytes alive at once.  `recipes` are schedules known from elsewhere, as places of the
    order in which steps first run.  `on_point` is called after each point with how many are done,
    and how many there are.
    """

    def __init__(
        self,
        work: CostModel,
        context: SearchContext,
        recipes: Iterable[Sequence[int]] = (),
        on_point: Callable[[int, int], object] = lambda _done, _all: None,
    ) -> None:
        self.work = work
        self._walk = Walk(work)
        self._seed = context.seed
        self._stop = context.stop
        steps = len(work.reads)
        self._limit = int(context.effort * most_entries(steps))
        self._on_point = on_point
        self.count, self._loosens = POINTS, _LOOSENED
        if steps > _MANY:
            self.count, self._loosens = POINTS_OF_MANY, _LOOSENED_OF_MANY
        self.halvings = _HALVINGS if steps <= _VERY_MANY else _HALVINGS_OF_MANY
        self.plain = self._walk.state
        self._recipes = [self._walk.weighed(places) for places in recipes]
        self._seeking = Seeking(
            self._walk, Starts(self._walk, self.plain, self._recipes), self._seed
        )
        self.low = least_budget(work)

    @property
    def _share(self) -> int:
        """The most entries looked at for one point."""
        return self._limit // self.count

    def between(
        self, budget: int, start: State, known: State | None, found: Sequence[State]
    ) -> list[State]:
        """The cheapest schedules found within a budget between two points.

        More is spent than on a point, as there are few of these.
        """
        share = int(_BETWEEN * self._limit)
        best = self._seeking.within(budget, start, known, found, share, _BRANCHES)
        return sorted([*best, *self._seeking.from_cuts(budget, share, best[:1])], key=price)

    @cached_property
    def budgets(self) -> list[int]:
        """The points from the top down; the first is that of the order without recompute."""
        high = self.plain.peak
        return [high - (high - self.low) * k // self.count for k in range(self.count + 1)]

    @cached_property
    def states(self) -> list[State]:
        """All schedules found on the points, down and up again, and those known from elsewhere.

        Searches do not begin at those that come from narrowed cuts: these have decided too much.
        """
        found, cuts = [self.plain, *self._recipes], list[State]()
        walked = [self.plain.peak]
        for done, budget in enumerate(self.budgets[1:]):
            if self._stepped(budget, walked[-1], found, cuts):
                walked.append(budget)
            self._on_point(done + 1, self.count)
            if self._stop() or self.budgets.index(walked[-1]) < done - _MISSED:
                break
        missed = (b for b in self.budgets if b < walked[-1])
        walked += self._lowest(max(missed, default=self.low), walked[-1], found, cuts)
        for budget in reversed(walked[1:]):
            found.append(self._loosened(budget, found))
        self._on_point(self.count, self.count)
        return found + cuts

    def _stepped(self, budget: int, above: int, found: list[State], cuts: list[State]) -> bool:
        """Whether a point was reached from the one above; the schedules there are added."""
        start = cheapest(found, above) or self.plain
        known = cheapest(found, budget)
        best = self._seeking.within(budget, start, known, found, self._share)[:1]
        found += best
        cuts += self._seeking.from_cuts(budget, self._share, best)
        return bool(best)

    def _lowest(self, low: int, high: int, found: list[State], cuts: list[State]) -> list[int]:
        """The points between one not reached and the one above it, halved towards it."""
        reached = list[int]()
        for _ in range(_LOWEST):
            half = (low + high) // 2
            if not low < half < high or self._stop():
                break
            if self._stepped(half, high, found, cuts):
                reached.append(half)
                high = half
            else:
                low = half
        return reached

    def _loosened(self, budget: int, found: list[State]) -> State:
        """The best schedule derived, with more room, from schedules of less memory."""
        walk, best = self._walk, cheapest(found, budget)
        assert best is not None  # noqa: S101 - a point that was reached
        lower = sorted((s for s in found if s.peak <= budget), key=price)[: self._loosens]
        walk.left = int(_UPWARD * self._share)
        for state in lower:
            walk.go(state)
            walk.trim(budget)
            best = min(best, walk.state, key=price)
        walk.go(best)
        return kick(walk, budget, np.random.default_rng((self._seed, budget, 1)))


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

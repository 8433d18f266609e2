"""The rungs of a ladder: one schedule for each of many budgets, searched from the top down.

The rungs lie evenly between what the order without recompute takes and what every schedule takes.
Each search begins at the cheapest schedule of the rung above, and at what minimum cuts and segments
say; on the way up again, each begins at what takes less.  Effort is counted, in entries that are
looked at; nothing depends on the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import numpy as np

from gradtool.planning.ladder.improve import kick, reach
from gradtool.planning.ladder.native_walk import walk_of
from gradtool.planning.ladder.starts import Starts, cheapest, price
from gradtool.planning.ladder.walk import State
from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.work_bound import least_budget

RUNGS, RUNGS_OF_MANY = 32, 12
_MANY = 1_000  # steps of a program with fewer rungs
_LOWEST = 3  # halvings towards the least rung that is reached
_HALVINGS, _HALVINGS_OF_MANY = 4, 3  # between two rungs, for a question
_VERY_MANY = 2_000  # steps of a program with fewer of these
_LIMIT, _LIMIT_OF_MANY = 6_000_000, 1_400  # entries that are looked at; of many steps, for each
_PER_STEP = 90_000  # of few steps
_BETWEEN, _BRANCHES = 0.12, 3  # of all effort, and schedules gone on from, between two rungs
_CUTS = 0.3  # of the effort of a rung
_PATIENCE = 40
_LOOSENED, _LOOSENED_OF_MANY = 8, 2  # schedules of less memory, on the way up
_MISSED = 1  # rungs in a row that are passed over
_UPWARD = 0.5  # of the effort of a rung, on the way up


class Rungs:
    """The schedules of a program at many budgets.

    Budgets are bytes alive at once.  `recipes` are schedules known from elsewhere, as places of the
    order in which steps first run.  `on_rung` is called after each rung
    with how many are done, and how many there are.
    """

    def __init__(
        self,
        work: CostModel,
        context: SearchContext,
        recipes: Iterable[Sequence[int]] = (),
        on_rung: Callable[[int, int], object] = lambda _done, _all: None,
    ) -> None:
        self.work = work
        self._walk = walk_of(work)
        self._seed = context.seed
        self._stop = context.stop
        steps = len(work.reads)
        limit = min(max(_LIMIT, _LIMIT_OF_MANY * steps), _PER_STEP * steps)
        self._limit = int(context.effort * limit)
        self._on_rung = on_rung
        self.count, self._loosens = RUNGS, _LOOSENED
        if steps > _MANY:
            self.count, self._loosens = RUNGS_OF_MANY, _LOOSENED_OF_MANY
        self.halvings = _HALVINGS if steps <= _VERY_MANY else _HALVINGS_OF_MANY
        self.plain = self._walk.state
        self._recipes = [self._walk.weighed(places) for places in recipes]
        self._starts = Starts(self._walk, self.plain, self._recipes)
        self.low = least_budget(work)

    @property
    def _share(self) -> int:
        """Entries that one rung may look at."""
        return self._limit // self.count

    def between(
        self, budget: int, start: State, known: State | None, found: Sequence[State]
    ) -> list[State]:
        """The cheapest schedules found within a budget that a question asks for between two rungs.

        More is spent than on a rung, as there are few of these.
        """
        share = int(_BETWEEN * self._limit)
        return self.search(budget, start, known, found, share, _BRANCHES)

    @cached_property
    def budgets(self) -> list[int]:
        """The rungs from the top down; the first is that of the order without recompute."""
        high = self.plain.peak
        return [high - (high - self.low) * k // self.count for k in range(self.count + 1)]

    @cached_property
    def states(self) -> list[State]:
        """All schedules found on the rungs, down and up again, and those known from elsewhere."""
        found = [self.plain, *self._recipes]
        walked = [self.plain.peak]
        for done, budget in enumerate(self.budgets[1:]):
            if self._stepped(budget, walked[-1], found):
                walked.append(budget)
            self._on_rung(done + 1, self.count)
            if self._stop() or self.budgets.index(walked[-1]) < done - _MISSED:
                break
        missed = (b for b in self.budgets if b < walked[-1])
        walked += self._lowest(max(missed, default=self.low), walked[-1], found)
        for budget in reversed(walked[1:]):
            found.append(self._loosened(budget, found))
        self._on_rung(self.count, self.count)
        return found

    def _stepped(self, budget: int, above: int, found: list[State]) -> bool:
        """Whether a rung was reached from the one above; what is there is added."""
        start = cheapest(found, above) or self.plain
        states = self.search(budget, start, cheapest(found, budget), found)
        found += states[:1]
        return bool(states)

    def _lowest(self, low: int, high: int, found: list[State]) -> list[int]:
        """The rungs between one that was not reached and the one above it, halved towards it."""
        reached = list[int]()
        for _ in range(_LOWEST):
            half = (low + high) // 2
            if not low < half < high or self._stop():
                break
            if self._stepped(half, high, found):
                reached.append(half)
                high = half
            else:
                low = half
        return reached

    def _loosened(self, budget: int, found: list[State]) -> State:
        """The best of what schedules of less memory become where there is more of it."""
        walk, best = self._walk, cheapest(found, budget)
        assert best is not None  # noqa: S101 - a rung that was reached
        lower = sorted((s for s in found if s.peak <= budget), key=price)[: self._loosens]
        walk.left = int(_UPWARD * self._share)
        for state in lower:
            walk.go(state)
            walk.trim(budget)
            best = min(best, walk.state, key=price)
        walk.go(best)
        return kick(walk, budget, np.random.default_rng((self._seed, budget, 1)))

    # --------------------------------------------------------------------- search

    def search(
        self,
        budget: int,
        start: State,
        known: State | None,
        found: Sequence[State],
        share: int | None = None,
        branches: int = 1,
    ) -> list[State]:
        """The cheapest schedules found within a budget, which `known` fits; the best comes first.

        It begins at one with more room, `start`, and at others of those `found` so far; from so
        many of what they become it goes on, each with its part of the effort that is left.  A
        `share` of the effort is that of a rung if it is None.
        """
        walk, share = self._walk, self._share if share is None else share
        walk.left = share
        fits = {known: None} if known else {}
        near: list[State] = []
        random = np.random.default_rng((self._seed, budget))
        for begin in self._starts.of(budget, start, found, int(_CUTS * share)):
            walk.go(begin)
            if walk.fit(budget, patience=_PATIENCE):
                walk.trim(budget)
                fits[walk.state] = None
            else:
                near += (begin, walk.state)
            if walk.left <= share // 2:
                break
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

"""One ladder of budgets: every question about a program is answered by the schedules on it.

The rungs lie evenly between what the order without recompute takes and what every schedule takes.
They are walked from the top down; each search begins at the cheapest schedule of the rung above,
and at what minimum cuts and segments say.  Between two rungs a question halves the range, a few
times: each half-way budget is a rung of its own, which depends on the rungs around it alone.  No
schedule is taken there that computes less than one with more room: so a budget never costs more
work than a smaller one, whatever was asked, and in whichever order.  Effort is counted, in entries
that are looked at; nothing depends on the clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from gradtool.planning.ladder.improve import kick, reach, trim
from gradtool.planning.ladder.walk import State, Walk
from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.knapsack import fill
from gradtool.planning.search.mincut import QUICK_ROOM, Instant
from gradtool.planning.search.work_bound import chain, instants, least_budget
from gradtool.program import Program

RUNGS, RUNGS_OF_MANY = 24, 12
_MANY = 1_000  # steps of a program with fewer rungs
_HALVINGS = 5
_LIMIT = 3_000_000
_PER_STEP = 20_000
_CUTS = 0.3  # of the effort of a rung
_CUT = 8  # entries that a cut counts for each step
_INSTANTS = 4
_PATIENCE = 40
_LOWER = 2
_UPWARD = 0.5  # of the effort of a rung, on the way up


class Ladder:
    """The schedules of a program at all budgets.

    Budgets are bytes alive at once.  `order` is that in which steps first run; `recipes` are
    schedules known from elsewhere, as places of that order.  `on_rung` is called after each rung
    with how many are done, and how many there are.
    """

    def __init__(
        self,
        program: Program,
        context: SearchContext,
        order: Sequence[int],
        recipes: Iterable[Sequence[int]] = (),
        on_rung: Callable[[int, int], object] = lambda _done, _all: None,
    ) -> None:
        self.work = CostModel(program, context.costs, order)
        self._walk = Walk(self.work)
        self._seed = context.seed
        self._stop = context.stop
        steps = len(order)
        self._limit = int(context.effort * min(_LIMIT, _PER_STEP * steps))
        self._on_rung = on_rung
        self.count = RUNGS if steps <= _MANY else RUNGS_OF_MANY
        self.plain = self._walk.state
        self._recipes = [self._walk.weighed(places) for places in recipes]
        self._halves: dict[int, State | None] = {}
        self.low = least_budget(self.work)

    @property
    def _share(self) -> int:
        """Entries that one rung may look at."""
        return self._limit // self.count

    @cached_property
    def budgets(self) -> list[int]:
        """The rungs from the top down; the first is that of the order without recompute."""
        high = self.plain.peak
        return [high - (high - self.low) * k // self.count for k in range(self.count + 1)]

    @cached_property
    def states(self) -> list[State]:
        """All schedules found on the rungs, down and up again, and those known from elsewhere."""
        found = [self.plain, *self._recipes]
        walked = list[int]()
        for done, (above, budget) in enumerate(zip(self.budgets, self.budgets[1:], strict=False)):
            if not self._stepped(budget, above, found):
                walked += self._lowest(budget, above, found)
                break
            walked.append(budget)
            self._on_rung(done + 1, self.count)
            if self._stop():
                break
        for budget in reversed(walked):
            found.append(self._loosened(budget, found))
        self._on_rung(self.count, self.count)
        return found

    def _stepped(self, budget: int, above: int, found: list[State]) -> bool:
        """Whether a rung was reached from the one above; what is there is added."""
        start = cheapest(found, above) or self.plain
        state = self._search(budget, start, cheapest(found, budget))
        found += [state] if state is not None else []
        return state is not None

    def _lowest(self, low: int, high: int, found: list[State]) -> list[int]:
        """The rungs between one that was not reached and the one above it, halved towards it."""
        reached = list[int]()
        for _ in range(_HALVINGS):
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
        lower = sorted((s for s in found if s.peak <= budget), key=_price)[:_LOWER]
        walk.left = int(_UPWARD * self._share)
        for state in lower:
            walk.go(state)
            trim(walk, budget)
            best = min(best, walk.state, key=_price)
        walk.go(best)
        return kick(walk, budget, np.random.default_rng((self._seed, budget, 1)))

    # ------------------------------------------------------------------ questions

    def within(self, budget: int) -> list[State]:
        """The schedules within a budget, the cheapest first."""
        found = list(self.states)
        self._towards(budget, found)
        fits = [s for s in found if s.peak <= budget]
        return sorted(set(fits), key=_price)

    def at_most(self, work: int) -> list[State]:
        """The schedules of no more work, that of least peak first."""
        found = list(self.states)
        known = [s.peak for s in found if s.extra <= work]
        self._halved(min(known), found, lambda s: s is not None and s.extra <= work)
        return sorted({s for s in found if s.extra <= work}, key=lambda s: (s.peak, s.extra))

    def _towards(self, budget: int, found: list[State]) -> None:
        """Halve the range between the rungs around a budget, towards it."""
        high, low = self._around(budget)
        for _ in range(_HALVINGS):
            half = (low + high) // 2
            if not low < half < high:
                return
            state = self._half(half, high, low, found)
            if half <= budget:
                low = half
            elif state is None:
                return
            else:
                high = half

    def _halved(
        self, budget: int, found: list[State], is_enough: Callable[[State | None], bool]
    ) -> None:
        """Halve the range below a budget for as long as what is found there is enough."""
        high, low = self._around(budget - 1)
        for _ in range(_HALVINGS):
            half = (low + high) // 2
            if not low < half < high:
                return
            state = self._half(half, high, low, found)
            if is_enough(cheapest(found, half)):
                high = half
            elif state is None:
                return
            else:
                low = half

    def _around(self, budget: int) -> tuple[int, int]:
        """The rungs around a budget: above it, and not above it."""
        rising = self.budgets[::-1]
        i = min(max(bisect_right(rising, budget), 1), len(rising) - 1)
        return rising[i], rising[i - 1]

    def _half(self, budget: int, above: int, below: int, found: list[State]) -> State | None:
        """The schedule of a rung between two rungs, which is added to what was found.

        None that computes less than what has the room above, or than what has no more than that
        below: other questions do not pass here.
        """
        if budget not in self._halves:
            start, least = cheapest(found, above), cheapest(found, below)
            begin = start or min(found, key=lambda s: (s.peak, s.extra))
            state = self._search(budget, begin, cheapest(found, budget))
            if state is not None and (
                (start is not None and state.extra < start.extra)
                or (state.peak <= below and (least is None or state.extra < least.extra))
            ):
                state = None
            self._halves[budget] = state
        state = self._halves[budget]
        if state is not None:
            found.append(state)
        return state

    # --------------------------------------------------------------------- search

    def _search(self, budget: int, start: State, known: State | None) -> State | None:
        """The cheapest schedule found within a budget; None if there is none."""
        walk = self._walk
        walk.left = self._share
        best = known
        near: list[State] = []
        random = np.random.default_rng((self._seed, budget))
        for begin in self._begin(budget, start):
            walk.go(begin)
            if walk.fit(budget, None if best is None else best.extra, _PATIENCE):
                trim(walk, budget)
                best = min((s for s in (best, walk.state) if s), key=_price)
            else:
                near += (begin, walk.state)
            if walk.left <= self._share // 2:
                break
        if best is not None:
            walk.go(best)
        elif not reach(walk, budget, near, random):
            return None
        trim(walk, budget)
        return kick(walk, budget, random)

    def _begin(self, budget: int, start: State) -> Iterator[State]:
        """Where searches begin: above, at cuts, at segments, and where nothing runs again."""
        yield start
        yield from self._cut(budget)
        above = (s for s in self._recipes if s.peak > budget)
        yield from sorted(above, key=lambda s: (s.peak, s.extra))[:_LOWER]
        yield self.plain

    def _cut(self, budget: int) -> Iterator[State]:
        """Schedules that keep what minimum cuts keep where memory pinches most."""
        cost = _CUT * len(self.work.reads)
        count = min(int(_CUTS * self._share) // cost, _INSTANTS)
        ends = [(i, i.breakpoint(i.capacity(budget))) for i in self._instants[:count]]
        known = [(i, e) for i, e in ends if e is not None]
        known.sort(key=lambda pair: -pair[1].bound)
        self._walk.left -= cost * count
        for instant, end in known[:2]:
            kept = fill(self.work, end, instant.capacity(budget)).kept
            gone = instant.drops(kept)[instant.at]
            yield self._walk.dropped(self.plain, instant.at, gone)

    @cached_property
    def _instants(self) -> list[Instant]:
        """Steps of a longest chain, the nearest to the peak first."""
        places = chain(self.work)
        peak = self.work.peak_place
        centre = min(range(len(places)), key=lambda i: abs(places[i] - peak), default=0)
        found, offset = places[centre : centre + 1], 1
        while len(found) < _INSTANTS and offset < len(places):
            near = (centre + offset, centre - offset)
            found += [places[i] for i in near if 0 <= i < len(places)]
            offset += max(1, offset // 2)
        return instants(self.work, found, QUICK_ROOM)


def cheapest(states: Iterable[State], budget: int) -> State | None:
    """The schedule within a budget that computes least again, of equals that of least peak."""
    return min((s for s in states if s.peak <= budget), key=_price, default=None)


def _price(state: State) -> tuple[int, int, tuple[int, ...]]:
    return state.extra, state.peak, state.places

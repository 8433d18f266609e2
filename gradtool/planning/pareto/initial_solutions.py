"""Initial solutions of the searches: known schedules, minimum cuts, and no recompute."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property

from gradtool.planning.pareto.walk import State, Walk
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.knapsack import fill
from gradtool.planning.search.mincut import QUICK_ROOM, Breakpoint, Instant
from gradtool.planning.search.work_bound import chain, instants

_CUT = 8  # entries that a cut counts for each step
_INSTANTS = 4
_TIGHTEST = 2
_NARROWER = 6  # times that a cut gets less room
_LOWER = 2
_HIGHER = (0.125, 0.35)  # of the way from the budget to the peak without recompute


class Starts:
    """Initial schedules of the search within a budget, the most promising first.

    `plain` runs nothing again; `recipes` are known from elsewhere.
    """

    def __init__(self, walk: Walk, plain: State, recipes: Sequence[State]) -> None:
        self.work = walk.work
        self.plain = plain
        self._walk = walk
        self._recipes = recipes

    def of(self, budget: int, above: State, found: Sequence[State], effort: int) -> Iterator[State]:
        """Initial schedules, from the nearest above a budget on; cuts take at most `effort`."""
        yield from dict.fromkeys([above, *self._known(budget, found)])
        yield from self._cut(budget, effort)
        yield self.plain
        recipes = (s for s in self._recipes if s.peak > budget)
        yield from sorted(recipes, key=lambda s: (s.peak, s.extra))[:_LOWER]

    def _known(self, budget: int, found: Sequence[State]) -> Iterator[State]:
        """The cheapest schedules found within some budgets between this and the highest.

        They have decided less than the one right above, and may come down another way.
        """
        for share in _HIGHER:
            state = cheapest(found, budget + int(share * (self.plain.peak - budget)))
            if state is not None:
                yield state

    def _cut(self, budget: int, effort: int) -> Iterator[State]:
        """Schedules of the minimum cuts at the instants where memory pinches most."""
        for instant, end in self._tightest(budget, effort):
            choice = fill(self.work, end, instant.capacity(budget))
            yield self._walk.weighed(run_again(self.work, instant.at, choice.again))

    def _tightest(self, budget: int, effort: int) -> list[tuple[Instant, Breakpoint]]:
        """The costliest of the instants within reach of some effort; this is spent."""
        cost = _CUT * len(self.work.reads)
        asked = self._instants[: effort // cost]
        self._walk.left -= cost * len(asked)
        ends = [(i, i.breakpoint(i.capacity(budget))) for i in asked]
        known = [(i, e) for i, e in ends if e is not None]
        known.sort(key=lambda pair: -pair[1].bound)
        return known[:_TIGHTEST]

    def narrowed(self, budget: int, effort: int, worth: int | None) -> Iterator[State]:
        """Schedules of such cuts that keep less, until all of the step has room, if it can.

        None of cuts that cost `worth` or more.
        """
        for instant, end in self._tightest(budget, effort):
            state = self._filled(instant, end, budget, worth)
            if state is not None:
                yield state

    def _filled(
        self, instant: Instant, end: Breakpoint, budget: int, worth: int | None
    ) -> State | None:
        """The schedule of a cut at an instant, with less capacity while the step lacks room."""
        capacity = instant.capacity(budget)
        for _ in range(_NARROWER):
            choice = fill(self.work, end, capacity)
            if worth is not None and choice.cost >= worth:
                return None
            state = self._walk.weighed(run_again(self.work, instant.at, choice.again))
            over = state.peak - budget
            capacity -= over
            narrower = instant.breakpoint(capacity) if over > 0 else None
            if narrower is None:
                break
            end = narrower
        return state

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


def run_again(work: CostModel, at: int, again: Collection[int]) -> list[int]:
    """The places of a schedule in which some steps run once more after the step at a place.

    Each runs right before the first step that needs it.  With the storages a cut keeps there, no
    step reads a freed one.
    """
    pending = {p for p in again if p < at}
    places = list(range(at + 1))
    for place in range(at + 1, len(work.reads)):
        if not pending:
            return [*places, *range(place, len(work.reads))]
        waiting = [place]
        while waiting:
            missing = next((m for m in work.makers[waiting[-1]] if m in pending), None)
            if missing is None:
                places.append(waiting.pop())
            else:
                pending.remove(missing)
                waiting.append(missing)
    return places


def cheapest(states: Iterable[State], budget: int) -> State | None:
    """The schedule of least recomputed work within a budget, of equals that of least peak."""
    return min((s for s in states if s.peak <= budget), key=price, default=None)


def price(state: State) -> tuple[int, int, tuple[int, ...]]:
    """The sort key of schedules: work, bytes, then places."""
    return state.extra, state.peak, state.places

"""Bounds of the extra work by integer programmes of more and more instants.

Each round solves the programme of some instants and weighs the schedule that its solution
describes.  Where that takes more than the budget the programme was too coarse: the next round
counts memory there as well.  A schedule that fits is as cheap as its bound: nothing is cheaper.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.stage_schedule import staged
from gradtool.planning.search.stages import Relaxed, Stages, Watched
from gradtool.planning.search.work_bound import chain, instants, rounded

_COLUMNS = 24_000  # of the first programme
_FIRST, _MORE = 12, 6  # instants to begin with, memory rows that a round adds
_IGNORED = 1_000  # part of the room whose bytes the smallest storages take together
_MANY = 200  # steps from which those are ignored
_GAP = 0.005  # of the work known, at which a programme is solved well enough
_FINEST, _COARSEST = 1e-6, 1e-3
_SHARE = 0.4  # of the time left, for one round
_LEAST = 1.0  # seconds that are worth another round


class Round(NamedTuple):
    """What a round says: extra work of every schedule within the budget, and how it is proven.

    `bound` is None where no schedule fits.  `found` are the places of a schedule within the budget
    that computes less than the one known, if there is one.
    """

    bound: int | None
    instants: int
    found: list[int] | None = None


def rounds(
    work: CostModel, budget: int, known: Sequence[int], seconds: float
) -> Iterator[Round]:
    """Rounds until the bound reaches the work of a known schedule, or the seconds are over."""
    end = time.perf_counter() + seconds
    search = _Rounds(work, budget, known)
    while (left := end - time.perf_counter()) > _LEAST and search.places:
        solved = search.solve(max(_SHARE * left, _LEAST))
        if solved is None:
            yield Round(None, len(search.places))
            return
        bound = min(rounded(work, solved.bound), search.extra)
        count = len(search.places)
        found = search.refine(solved) if solved.runs else None
        yield Round(bound, count, found)
        if search.extra - bound <= search.gap * work.total or not search.is_open:
            return
        if not solved.runs:
            search.coarsen()


class _Rounds:
    """The moments at which memory is counted, and the best schedule known."""

    def __init__(self, work: CostModel, budget: int, known: Sequence[int]) -> None:
        self.work, self.budget = work, budget
        self.extra = work.work_again(known)
        chained = chain(work)
        self._instants = dict(zip(chained, instants(work, chained), strict=True))
        self._position = {place: i for i, place in enumerate(chained)}
        self._watched: dict[Watched, None] = {}
        large = len(work.reads) > _MANY
        room = budget - work.simulator.fixed
        self._ignored = max(room, 0) // _IGNORED if large else 0
        columns = max(2 * (len(work.reads) + len(work.maker)), 1)
        count = min(max(_COLUMNS // columns, 3), _FIRST, len(chained))
        self.places = set(_tightest(work, known, chained, count))
        self.is_open = True

    @property
    def gap(self) -> float:
        """Work, as a share of a step, below which a better bound says little."""
        return min(max(_GAP * self.extra / max(self.work.total, 1), _FINEST), _COARSEST)

    def solve(self, seconds: float) -> Relaxed | None:
        """The programme of all moments so far."""
        self._asked = [self._instants[p] for p in sorted(self.places, key=self._position.__getitem__)]
        self._stages = Stages(self.work, self._asked, self.budget, self._watched, self._ignored)
        return self._stages.solve(seconds=seconds, gap=self.gap)

    def refine(self, solved: Relaxed) -> list[int] | None:
        """Count memory where the schedule of a solution takes too much; that schedule, if it fits
        and is the cheapest known."""
        places, stages = staged(self._stages, solved)
        profile = _profile(self.work, places)
        over = sorted((-size, e) for e, size in enumerate(profile) if size > self.budget)
        if not over:
            self.is_open = False
            extra = self.work.work_again(places)
            better, self.extra = extra < self.extra, min(extra, self.extra)
            return places if better else None
        first = {place: e for e, place in reversed(list(enumerate(places)))}
        added: set[int] = set()
        for _, e in over:
            place, stage = places[e], stages[e]
            if stage not in added and self._count(place, stage, first=first[place] == e):
                added.add(stage)
            if len(added) == _MORE:
                break
        self.is_open = bool(added)
        return None

    def _count(self, place: int, stage: int, *, first: bool) -> bool:
        """Count memory while a step runs in a stage; whether it was not counted there before."""
        if first and place in self._instants and place not in self.places:
            self.places.add(place)
            return True
        after = self._asked[stage - 1].at if stage else -1
        watched = Watched(place, after)
        if stage and stage < len(self._asked) and watched not in self._watched:
            self._watched[watched] = None
            return True
        low = self._position[after] if stage else -1
        last = len(self._position)
        high = self._position[self._asked[stage].at] if stage < len(self._asked) else last
        if high - low < 2:
            return False
        self.places.add(list(self._position)[(low + high) // 2])
        return True

    def coarsen(self) -> None:
        """Half the instants: the programme took longer than there is time."""
        kept = sorted(self.places, key=self._position.__getitem__)[::2]
        self.places = set(kept) if len(kept) < len(self.places) else set()
        self._watched.clear()


def _tightest(
    work: CostModel, known: Sequence[int], chained: Sequence[int], count: int
) -> Iterator[int]:
    """Of equal parts of a chain, the step during whose first run a schedule takes most."""
    bytes_at: dict[int, int] = {}
    for place, size in zip(known, _profile(work, known), strict=True):
        bytes_at.setdefault(place, size)
    for part in range(count):
        steps = chained[part * len(chained) // count : (part + 1) * len(chained) // count]
        yield max(steps, key=lambda place: bytes_at.get(place, 0))


def _profile(work: CostModel, places: Sequence[int]) -> list[int]:
    """Bytes alive at each entry of a schedule."""
    return work.simulator.profile([work.order[place] for place in places])

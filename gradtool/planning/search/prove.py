"""Bounds of the extra work by integer programmes of more and more instants.

Each round solves the programme of some instants and weighs the schedule that its solution
describes.  Where that takes more than the budget the programme was too coarse: the next round
counts memory there as well.  A schedule that fits is as cheap as its bound: nothing is cheaper.

The schedule of a solution of the integer programme of some stages.

Within a stage steps run in base order, each right after the missing producers of its reads.  The
programme counts memory at some moments only, so the schedule may take more than the budget.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from gradtool.planning.schedule import alive
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.milp import Relaxed, Watched
from gradtool.planning.search.staged_milp import Stages
from gradtool.planning.search.work_bound import chain, instants, rounded

_COLUMNS = 24_000  # of the first programme
_FIRST, _MORE = 12, 6  # instants to begin with, memory rows that a round adds
_TIGHT = 0.9  # of the peak of the schedule known, above which memory is counted first
_IGNORED = 1_000  # part of the room whose bytes the smallest storages take together
_MANY = 200  # steps from which the smallest are ignored
_GAP = 0.005  # of the work known, at which a programme is solved well enough
_FINEST, _COARSEST = 1e-6, 1e-3
_SHARE = 0.25  # of the time left, for one round
_MEMORY = "memory is not counted everywhere"
_TIME = "the programme is not solved"
_LEAST = 1.0  # seconds that are worth another round


class Round(NamedTuple):
    """The result of a round: extra work of every schedule within the budget, and its proof.

    `bound` is None where no schedule fits.  `found` are the places of a schedule within the budget
    that computes less than the one known, if there is one; `lacks` is the reason of a low bound.
    """

    bound: int | None
    how: str
    lacks: str = ""
    found: list[int] | None = None


def rounds(
    work: CostModel,
    budget: int,
    known: Sequence[int],
    seconds: float,
    on_time: Callable[[int, int], object] = lambda _done, _all: None,
) -> Iterator[Round]:
    """Rounds until the bound reaches the work of a known schedule, or the seconds are over.

    `on_time` is called before each with the seconds gone, and how many there are.
    """
    end = time.perf_counter() + seconds
    search, best, share = _Rounds(work, budget, known), -1, _SHARE
    while (left := end - time.perf_counter()) > _LEAST and search.moments.places:
        on_time(int(seconds - left), int(seconds))
        solved = search.solve(max(share * left, _LEAST))
        if solved is None:
            yield Round(None, "")
            return
        bound = rounded(work, solved.bound)
        how = f"integer programme of {len(search.moments.places)} instants"
        before = search.moments
        found = search.refine(solved) if solved.runs else None
        lacks = _MEMORY if solved.is_closed else _TIME
        yield Round(bound, how, lacks if search.is_open else "", found)
        if search.extra - bound <= search.gap * work.total or not search.is_open:
            return
        if share == 1 and not solved.is_closed:
            return
        share = _SHARE
        if bound > best:
            best, hopeful = bound, search.moments if solved.is_closed else before
        elif not solved.is_closed and best > 0:
            # Finer programmes take longer than there is time: the best one gets the rest.
            search.moments, share = hopeful, 1
        elif not solved.runs:
            search.moments = before.halved()


class _Moments(NamedTuple):
    """The moments at which memory is counted: first runs of steps, and steps inside stages."""

    places: tuple[int, ...]
    watched: tuple[Watched, ...] = ()

    def halved(self) -> _Moments:
        """Half as many, none of them inside stages; none if there was one."""
        return _Moments(self.places[::2] if len(self.places) > 1 else ())


class _Rounds:
    """The moments of counting memory, and the best schedule known."""

    def __init__(self, work: CostModel, budget: int, known: Sequence[int]) -> None:
        self.work, self.budget = work, budget
        self.extra = work.work_again(known)
        chained = chain(work)
        self._instants = dict(zip(chained, instants(work, chained), strict=True))
        self._position = {place: i for i, place in enumerate(chained)}
        large = len(work.reads) > _MANY
        room = budget - work.simulator.fixed
        self._ignored = max(room, 0) // _IGNORED if large else 0
        columns = max(2 * (len(work.reads) + len(work.maker)), 1)
        count = min(max(_COLUMNS // columns, 3), _FIRST, len(chained))
        self.moments = _Moments(tuple(_tightest(work, known, chained, count)))
        self.is_open = True

    @property
    def gap(self) -> float:
        """Work, as a share of a step, below which a better bound says little."""
        return min(max(_GAP * self.extra / max(self.work.total, 1), _FINEST), _COARSEST)

    def solve(self, seconds: float) -> Relaxed | None:
        """The programme of all moments so far."""
        places, watched = self.moments
        self._asked = [self._instants[place] for place in places]
        self._stages = Stages(self.work, self._asked, self.budget, watched, self._ignored)
        return self._stages.solve(seconds=seconds, gap=self.gap)

    def refine(self, solved: Relaxed) -> list[int] | None:
        """Count memory where the schedule of a solution takes too much.

        Returns that schedule if it fits and is the cheapest known.
        """
        places, stages = staged(self._stages, solved)
        profile = _profile(self.work, places)
        over = sorted((-size, e) for e, size in enumerate(profile) if size > self.budget)
        if not over:
            self.is_open = False
            extra = self.work.work_again(places)
            better, self.extra = extra < self.extra, min(extra, self.extra)
            return places if better else None
        first = {place: e for e, place in reversed(list(enumerate(places)))}
        asked, watched = set(self.moments.places), set(self.moments.watched)
        added: set[int] = set()
        for _, e in over:
            stage = stages[e]
            if stage in added or len(added) == _MORE:
                continue
            moment = self._moment(places[e], stage, is_first=first[places[e]] == e)
            if moment is not None:
                added.add(stage)
                if isinstance(moment, Watched):
                    watched.add(moment)
                else:
                    asked.add(moment)
        self.is_open = bool(added)
        ordered = tuple(sorted(asked, key=self._position.__getitem__))
        self.moments = _Moments(ordered, tuple(sorted(watched)))
        return None

    def _moment(self, place: int, stage: int, *, is_first: bool) -> int | Watched | None:
        """A moment that counts the memory of a step in a stage, if none does yet."""
        known, watched = self.moments
        if is_first and place in self._instants and place not in known:
            return place
        after = known[stage - 1] if stage else -1
        if 0 < stage < len(known) and Watched(place, after) not in watched:
            return Watched(place, after)
        low = self._position[after] if stage else -1
        high = self._position[known[stage]] if stage < len(known) else len(self._position)
        return list(self._position)[(low + high) // 2] if high - low > 1 else None


def _tightest(
    work: CostModel, known: Sequence[int], chained: Sequence[int], count: int
) -> list[int]:
    """Steps of a chain at whose first runs a schedule takes most, spread over the chain.

    Those that take nearly the peak are divided into equal parts; each gives its largest.
    """
    profile = _profile(work, known)
    least = _TIGHT * max(profile, default=0)
    sizes: dict[int, int] = {}
    for place, size in zip(known, profile, strict=True):
        sizes.setdefault(place, size)
    tight = [place for place in chained if sizes.get(place, 0) >= least] or list(chained)
    count = min(count, len(tight))
    parts = [tight[i * len(tight) // count : (i + 1) * len(tight) // count] for i in range(count)]
    return [max(part, key=lambda place: sizes.get(place, 0)) for part in parts]


def _profile(work: CostModel, places: Sequence[int]) -> list[int]:
    """Bytes alive at each entry of a schedule."""
    return work.simulator.profile([work.order[place] for place in places])


class Staged(NamedTuple):
    """A schedule as places of the base order, and the stage of each entry."""

    places: list[int]
    stages: list[int]


def staged(programme: Stages, solved: Relaxed) -> Staged:
    """The schedule of a solution; steps missing in the programme run as early as they can.

    Dead instances are left out.
    """
    work, found = programme.work, _Run(programme, solved).staged
    is_alive = alive(work.program, [work.order[place] for place in found.places])
    kept = [entry for entry, stays in enumerate(is_alive) if stays]
    return Staged([found.places[e] for e in kept], [found.stages[e] for e in kept])


class _Run:
    def __init__(self, programme: Stages, solved: Relaxed) -> None:
        self.work = programme.work
        self.staged = Staged([], [])
        self._there: set[int] = set()
        asked = set(programme.steps)
        self._waiting = [s for s in range(len(self.work.reads)) if s not in asked]
        for stage, runs in enumerate(solved.runs):
            end = programme.instants[stage].at if stage < programme.count else -1
            for step in sorted(runs - {end}):
                self._go(step, stage)
            if end < 0:
                break
            self._go(end, stage)
            self._free(programme, solved.kept[stage])
        for step in self._waiting:
            self._go(step, programme.count)

    def _go(self, step: int, stage: int) -> None:
        """Run a step after those whose results it lacks."""
        stack = [step]
        while stack:
            lacks = [r for r in self.work.reads[stack[-1]] if r not in self._there]
            if lacks:
                stack.append(self.work.maker[lacks[0]])
                continue
            self._put(stack.pop(), stage)

    def _put(self, step: int, stage: int) -> None:
        self.staged.places.append(step)
        self.staged.stages.append(stage)
        self._there.update(self.work.writes[step])
        if step in self._waiting:
            self._waiting.remove(step)
        ready = [s for s in self._waiting if self._there.issuperset(self.work.reads[s])]
        for other in ready:
            if other in self._waiting:
                self._put(other, stage)

    def _free(self, programme: Stages, kept: frozenset[int]) -> None:
        gone = {
            r for r in self._there
            if r in programme.roots and r not in kept and self.work.may_drop(r)
        }  # fmt: skip
        self._there -= gone

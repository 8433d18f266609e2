"""The largest batch that fits into a memory, plan by plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial

from gradtool.errors import ModelError
from gradtool.planning.optimizer import state_bytes
from gradtool.planning.schedule import Schedule
from gradtool.workloads.budgets.prices import FLOPS
from gradtool.workloads.budgets.search import CUTS, Search
from gradtool.workloads.names import KEEP, LIGHT
from gradtool.workloads.planned import Planned
from gradtool.workloads.plans import (
    OnRung,
    Strategy,
    Workload,
    largest_batch,
    planned,
)
from gradtool.workloads.strategies import keep

_MOST = 1 << 30  # a model that takes as much at any batch has no largest
_CLOSE = 1 / 64  # of a batch, how near to the largest a plan that is searched for has to come
# Plans that are searched for: how far, and the work that they may do again, of a step; None for as
# much as forward is.
_SEARCHED: Mapping[str, tuple[float, Fraction | None]] = {
    "optimal": (1.0, None),
    LIGHT: (1.0, Fraction(1, 20)),
    "min-cut": (CUTS, None),
}

Grown = Callable[[int], Workload]


def largest_batches(
    grown: Grown,
    strategies: Mapping[str, Strategy],
    memory: int,
    *,
    optimizer: str = "none",
    done: Callable[[], object] = lambda: None,
    rung: OnRung = lambda _done, _all: None,
) -> dict[str, int]:
    """By plan, the largest batch whose step fits, optimizer state included; 0 if none does.

    The search begins at the batch that fits when everything is kept, where a plan fits that one; a
    plan that is searched for begins at the largest of the plans before it that computes no more
    again than it may, and its batch may be a little smaller than the largest.  `done` is called
    after each plan, `rung` as a search goes on.

    Raises:
        ModelError: the model has no step of a batch on the way.
    """
    batches = _Batches(grown, strategies, memory, optimizer, rung)
    kept = batches.simple(KEEP, 1)
    found: dict[str, int] = {}
    for name in strategies:
        if name == KEEP:
            found[name] = kept
        elif name in _SEARCHED:
            found[name] = batches.searched(name, batches.least(name, found))
        else:
            found[name] = batches.simple(name, kept)
        done()
    return found


class _Batches:
    """The plans of a training graph by batch, each made once, and the memory they have to fit."""

    def __init__(
        self,
        grown: Grown,
        strategies: Mapping[str, Strategy],
        memory: int,
        optimizer: str,
        rung: OnRung,
    ) -> None:
        self._grown, self._strategies = grown, {KEEP: keep, **strategies}
        self._memory, self._optimizer, self._rung = memory, optimizer, rung
        self._works: dict[int, Workload] = {}
        self._plans: dict[tuple[str, int], Planned] = {}

    def work(self, size: int) -> Workload:
        """What is planned of a batch."""
        if size not in self._works:
            try:
                work = self._works[size] = self._grown(size)
            except ModelError as error:
                raise ModelError(f"the model cannot run with a batch of {size}: {error}") from error
            work.listener.rung = self._rung
        return self._works[size]

    def plan(self, name: str, size: int) -> Planned:
        """The plan of a batch that is not searched for."""
        if (name, size) not in self._plans:
            self._plans[name, size] = self._strategies[name](self.work(size))
        return self._plans[name, size]

    def room(self, size: int) -> int:
        """The bytes that are left to the arena of a batch."""
        return _room(self.work(size), self._memory, self._optimizer)

    def spare(self, name: str, size: int) -> int:
        """The bytes that a plan of a batch leaves; fewer than 0 if it does not fit."""
        return self.room(size) - self.plan(name, size).peak

    def simple(self, name: str, start: int) -> int:
        """The largest batch for a plan that is not searched for, looked for from `start` on."""
        start = start if start and self.spare(name, start) >= 0 else 1
        rate = self._rate(self.plan(name, start), start)
        return largest_batch(partial(self.spare, name), start=start, rate=rate, most=_MOST)

    def least(self, name: str, found: Mapping[str, int]) -> int:
        """The largest of the batches found that a plan that is searched for has to fit."""
        by_size = sorted(found.items(), key=lambda each: -each[1])
        fits = (
            size
            for other, size in by_size
            if size and _is_allowed(self.work(size), name, self.plan(other, size).schedule)
        )
        return next(fits, 0)

    def searched(self, name: str, least: int) -> int:
        """A batch about as large as any for a plan that is searched for, which fits `least`.

        Every candidate is searched anew: what was found for another is not known to a question
        about this one.  A search finds a little more here and a little less there, so that batches
        closer than `_CLOSE` are not told apart.
        """
        start = max(least, 1)
        found = self._search(name, start)
        if found is None:
            return least
        spare, rate = partial(self._spare_of_search, name), self._rate(found, start)
        return max(least, largest_batch(spare, start=start, rate=rate, most=_MOST, close=_CLOSE))

    def _spare_of_search(self, name: str, size: int) -> int | None:
        """The bytes that a plan that is searched for leaves; None if none can fit."""
        found = self._search(name, size)
        return None if found is None else self.room(size) - found.peak

    def _search(self, name: str, size: int) -> Planned | None:
        return _searched(self.work(size), name, self.room(size))

    def _rate(self, found: Planned, size: int) -> float:
        """About what one example more takes in a plan of a batch.

        A line through it and the nearest other batch that was looked at, in the same schedule; what
        is there at any batch left out if there is none.
        """
        names = _names(self.work(size))
        others = (s for s, work in self._works.items() if s != size and _names(work) == names)
        other = min(others, key=lambda s: abs(s - size), default=None)
        if other is not None:
            there = planned(self.work(other), found.name, found.schedule)
            return (found.peak - there.peak) / (size - other)
        buffers = found.plan.buffers
        lasting = sum(buffer.bytes for buffer in buffers if buffer.region == "parameters")
        return (found.peak - lasting) / size


def _searched(work: Workload, name: str, memory: int) -> Planned | None:
    """The least plan of a batch that does no more than it may; None if none fits so many bytes."""
    effort, _ = _SEARCHED[name]
    answers = Search(effort).answers(work)
    return None if memory < answers.known.least else answers.at_most(_allowed(work, name))


def _is_allowed(work: Workload, name: str, schedule: Schedule) -> bool:
    """Whether a plan that is searched for may run what a schedule does, all costs being known."""
    costs = FLOPS.of(work.program)
    again = [costs[step] for step in schedule.recomputed]
    return None not in again and sum(filter(None, again)) <= _allowed(work, name)


def _allowed(work: Workload, name: str) -> int:
    """What a plan that is searched for may do again."""
    _, share = _SEARCHED[name]
    return FLOPS.forward(work.program) if share is None else int(share * FLOPS.total(work.program))


def _names(work: Workload) -> list[str]:
    return [step.name for step in work.program.steps]


def plan_fits(work: Workload, name: str, strategy: Strategy, memory: int) -> bool:
    """Whether the arena of a plan fits into so many bytes."""
    if name in _SEARCHED:
        found = _searched(work, name, memory)
        return found is not None and found.peak <= memory
    return strategy(work).peak <= memory


def _room(work: Workload, memory: int, optimizer: str) -> int:
    return memory - state_bytes(work.program, optimizer)

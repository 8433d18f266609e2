"""The largest batch that fits into a memory, plan by plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import partial

from gradtool.errors import ModelError
from gradtool.planning.pareto import requirements
from gradtool.workloads.budgets.limits import state_bytes
from gradtool.workloads.budgets.prices import FLOPS
from gradtool.workloads.budgets.search import CUTS, Search
from gradtool.workloads.names import KEEP, LIGHT
from gradtool.workloads.planned import Planned
from gradtool.workloads.plans import Strategy, extra_of, largest_batch, planned
from gradtool.workloads.strategies import keep
from gradtool.workloads.workload import OnPoint, Workload

_MOST = 1 << 30  # a model that takes as much at any batch has no largest
_DIGITS = 7  # binary, of a batch that is searched: how near to the largest it may come
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
    point: OnPoint = lambda _done, _all: None,
) -> dict[str, int]:
    """By plan, the largest batch whose step fits, optimizer state included; 0 if none does.

    The search begins at the batch that fits when everything is kept, where a plan fits that one; a
    plan that is searched for begins at the largest of the plans before it that computes no more
    again than it may, and its batch may be a little smaller than the largest.  `done` is called
    after each plan, `point` as a search goes on.

    Raises:
        ModelError: the model has no step of a batch on the way.
        DeviceError: a plan is searched for, and there is no native library.
    """
    if not _SEARCHED.keys().isdisjoint(strategies):
        requirements.require()
    batches = _Batches(grown, strategies, memory, optimizer, point)
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
        point: OnPoint,
    ) -> None:
        self._grown, self._strategies = grown, {KEEP: keep, **strategies}
        self._memory, self._optimizer, self._point = memory, optimizer, point
        self._works: dict[int, Workload] = {}
        self._plans: dict[tuple[str, int], Planned] = {}

    def work(self, size: int) -> Workload:
        """The workload of a batch."""
        if size not in self._works:
            try:
                work = self._works[size] = self._grown(size)
            except ModelError as error:
                raise ModelError(f"the model cannot run with a batch of {size}: {error}") from error
            work.listener.point = self._point
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
        rate = self._rate(self.plan(name, start), start, self._works)
        return largest_batch(partial(self.spare, name), start=start, rate=rate, most=_MOST)

    def least(self, name: str, found: Mapping[str, int]) -> int:
        """The largest found batch whose plan has to be searched for."""
        by_size = sorted(found.items(), key=lambda each: -each[1])
        fits = (
            size
            for other, size in by_size
            if size and _is_allowed(self.work(size), name, self.plan(other, size))
        )
        return next(fits, 0)

    def searched(self, name: str, least: int) -> int:
        """A batch about as large as any for a plan that is searched for, no smaller than `least`.

        Every candidate is searched anew, and a search finds a little more at one and a little less
        at the next.  More memory never gives a smaller batch nevertheless: it reaches as far or
        farther, by a plan of a power of four, and the answer is the largest below that which fits.
        """
        low = 4 ** ((max(least, 1).bit_length() - 1) // 2)
        while (reach := self._reach(name, low)) >= 4 * low < _MOST and self._fits(name, 4 * low):
            low *= 4
        sizes = _down(min(reach, 4 * low - 1), max(low - 1, least))
        return next((size for size in sizes if self._fits(name, size)), least)

    def _reach(self, name: str, low: int) -> int:
        """About the largest batch that fits, by how the plan of the batch `low` grows."""
        found = self._search(name, low)
        rate = max(self._rate(found, low, [2 * low]), 1 / _MOST)
        return low + int(min((self.room(low) - found.peak) // rate, _MOST))

    def _fits(self, name: str, size: int) -> bool:
        """Whether the plan that is found for a batch does."""
        room = self.room(size)
        return _least(self.work(size), name) <= room and self._search(name, size).peak <= room

    def _search(self, name: str, size: int) -> Planned:
        return _searched(self.work(size), name)

    def _rate(self, found: Planned, size: int, known: Iterable[int]) -> float:
        """About what one example more takes in a plan of a batch.

        A line through it and the nearest other one that is known, in the same schedule; what is
        there at any batch left out if there is none.
        """
        names = _names(self.work(size))
        known = () if found.form is not None else known  # whose steps others may not have
        others = (s for s in known if s != size and _names(self.work(s)) == names)
        near = min(others, key=lambda s: abs(s - size), default=None)
        if near is not None:
            there = planned(self.work(near), found.name, found.schedule)
            return (found.peak - there.peak) / (size - near)
        buffers = found.plan.buffers
        lasting = sum(buffer.bytes for buffer in buffers if buffer.region == "parameters")
        return (found.peak - lasting) / size


def _down(most: int, end: int) -> Iterator[int]:
    """Batches of few binary digits above `end`, from `most` down."""
    while most > end:
        step = 1 << max(most.bit_length() - _DIGITS, 0)
        most -= most % step
        if most > end:
            yield most
        most -= 1


def _searched(work: Workload, name: str) -> Planned:
    """The least plan of a batch that does no more than it may."""
    effort, _ = _SEARCHED[name]
    return Search(effort).answers(work).at_most(_allowed(work, name))


def _least(work: Workload, name: str) -> int:
    """The lower bound of all plans of a batch."""
    effort, _ = _SEARCHED[name]
    return Search(effort).answers(work).known.least


def _is_allowed(work: Workload, name: str, found: Planned) -> bool:
    """Whether a searched plan may recompute as much as another, all costs being known."""
    extra = extra_of(work, found)
    return extra is not None and extra <= _allowed(work, name)


def _allowed(work: Workload, name: str) -> int:
    """The recomputation allowed to a searched plan."""
    _, share = _SEARCHED[name]
    return FLOPS.forward(work.program) if share is None else int(share * FLOPS.total(work.program))


def _names(work: Workload) -> list[str]:
    return [step.name for step in work.program.steps]


def _room(work: Workload, memory: int, optimizer: str) -> int:
    return memory - state_bytes(work.program, optimizer)

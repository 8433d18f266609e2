"""The largest batch that fits into a memory, plan by plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from gradtool.errors import ModelError
from gradtool.planning.optimizer import state_bytes
from gradtool.planning.plan import Plan
from gradtool.workloads.budgets.prices import FLOPS
from gradtool.workloads.budgets.search import CUTS, Search
from gradtool.workloads.names import LIGHT
from gradtool.workloads.plans import (
    Planned,
    Strategy,
    Workload,
    extra_flops,
    largest_batch,
    planned,
)

_MOST = 1 << 30  # a model that takes as much at any batch has no largest
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
) -> dict[str, int]:
    """By plan, the largest batch whose step fits, optimizer state included; 0 if none does.

    The search begins at the batch that fits when everything is kept, where a plan fits that one; a
    plan that is searched for begins at the largest of the plans before it that computes no more
    again than it may, and follows each schedule that it finds as far as that fits.  `done` is
    called after each plan.

    Raises:
        ModelError: the model has no step of a batch on the way.
    """

    def keeps(size: int) -> int:
        work = _of(grown, size)
        return room(work) - work.kept.peak

    def known(name: str) -> int:
        by_size = sorted(found.items(), key=lambda each: -each[1])
        fits = (size for other, size in by_size if size and is_cheap(other, name, size))
        return next(fits, 0)

    def is_cheap(other: str, name: str, size: int) -> bool:
        work = _of(grown, size)
        extra = extra_flops(strategies[other](work).plan, work.kept)
        return extra is not None and extra <= _allowed(work, name)

    def largest(name: str, strategy: Strategy) -> int:
        if name in _SEARCHED:
            return _largest_searched(lambda s: _of(grown, s), name, room, known(name))

        def spare(size: int) -> int:
            work = _of(grown, size)
            return room(work) - strategy(work).plan.peak

        start = kept if kept and spare(kept) >= 0 else 1
        rate = _each(strategy(_of(grown, start)).plan, start)
        return largest_batch(spare, start=start, rate=rate, most=_MOST)

    def room(work: Workload) -> int:
        return _room(work, memory, optimizer)

    kept = largest_batch(keeps, rate=_each(_of(grown, 1).kept, 1), most=_MOST)
    found: dict[str, int] = {}
    for name, strategy in strategies.items():
        found[name] = kept if name == "keep" else largest(name, strategy)
        done()
    return found


def _of(grown: Grown, size: int) -> Workload:
    try:
        return grown(size)
    except ModelError as error:
        raise ModelError(f"the model cannot run with a batch of {size}: {error}") from error


def _largest_searched(grown: Grown, name: str, room: Callable[[Workload], int], least: int) -> int:
    """The largest batch for a plan that is searched for, which fits `least`.

    What is found for one batch is tried at larger ones before another search; in the end the search
    of the batch itself has to find a plan that fits.
    """
    size = low = least
    while size < _MOST:
        found = _searched(grown(size + 1), name, room(grown(size + 1)))
        if found is None:
            break
        low = size + 1
        names = [step.name for step in grown(size + 1).program.steps]

        def spare(size: int, found: Planned = found, names: Sequence[str] = names) -> int | None:
            work = grown(size)
            if names != [step.name for step in work.program.steps]:
                return None
            costs = FLOPS.of(work.program)
            again = [costs[step] for step in found.schedule.recomputed]
            if None in again or sum(filter(None, again)) > _allowed(work, name):
                return None
            told = work.arenas.size(found.schedule.order) if work.arenas else None
            peak = planned(work, name, found.schedule).plan.peak if told is None else told
            return room(work) - peak

        rate = _each(found.plan, low)
        size = max(largest_batch(spare, start=low, rate=rate, most=_MOST), low)
    if size == low or _searched(grown(size), name, room(grown(size))) is not None:
        return size
    while size - low > 1:
        middle = (low + size) // 2
        does = _searched(grown(middle), name, room(grown(middle))) is not None
        low, size = (middle, size) if does else (low, middle)
    return low


def _searched(work: Workload, name: str, memory: int) -> Planned | None:
    """The plan of a batch that fits into so many bytes of arena, and does no more than it may."""
    effort, _ = _SEARCHED[name]
    answers = Search(effort).answers(work)
    if memory < answers.known.least:
        return None
    found = answers.at_most(_allowed(work, name))
    return found if found.plan.peak <= memory else None


def _allowed(work: Workload, name: str) -> int:
    """What a plan that is searched for may do again."""
    _, share = _SEARCHED[name]
    return FLOPS.forward(work.program) if share is None else int(share * FLOPS.total(work.program))


def _each(plan: Plan, size: int) -> float:
    """About what one example of a batch takes: what is there at any batch is not of it."""
    lasting = sum(buffer.bytes for buffer in plan.buffers if buffer.region == "parameters")
    return (plan.peak - lasting) / size


def plan_fits(work: Workload, name: str, strategy: Strategy, memory: int) -> bool:
    """Whether the arena of a plan fits into so many bytes."""
    if name in _SEARCHED:
        return _searched(work, name, memory) is not None
    return strategy(work).plan.peak <= memory


def _room(work: Workload, memory: int, optimizer: str) -> int:
    return memory - state_bytes(work.program, optimizer)

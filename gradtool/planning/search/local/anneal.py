"""Annealing of whole schedules: steps change places, run again and stop running again.

Source: fast simulated annealing for rematerialisation (FastSA, NeurIPS 2023) anneals sequences of
steps with the peak in a segment tree.  We add up the bytes above the budget at every step instead:
such a sum tells schedules apart that have the same peak, and changes only where storages come to
life or die elsewhere, which is mostly near the step that moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gradtool.planning.schedule import Schedule, pruned
from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.local.compiled import Annealer, available
from gradtool.planning.search.local.memory import SLOTS, memory
from gradtool.planning.simulate import Simulator
from gradtool.program import Program

MOVES = 12_000_000
INTERPRETED = 100
_AT_ONCE = 2_000


class Cooling(NamedTuple):
    """A share of the moves, during which the temperature falls and the excess weighs more and more.

    `hot` is the first temperature in mean costs of a step, halved so many times up to the end;
    `light` is the first weight in mean costs per mean bytes of a storage, doubled so many times.
    """

    share: float
    hot: float
    halved: int
    light: float
    doubled: int


COOLINGS = (
    Cooling(share=0.7, hot=1.0, halved=6, light=0.2, doubled=5),
    Cooling(share=0.3, hot=0.2, halved=5, light=1.0, doubled=3),
)


@dataclass(frozen=True)
class Polished:
    """A schedule: its peak in bytes, the cost of what runs again, and how many moves were tried."""

    order: tuple[int, ...]
    peak: int
    extra: int
    moves: int

    def rank(self, budget: int) -> tuple[int, int]:
        """What to minimise: the bytes above a budget, then the extra work."""
        return rank(self.peak, self.extra, budget)


def rank(peak: int, extra: int, budget: int) -> tuple[int, int]:
    """What to minimise of schedules: the bytes above a budget, then the extra work."""
    return max(peak - budget, 0), extra


def polish(
    program: Program,
    start: Sequence[int],
    budget: int,
    context: SearchContext = SearchContext(),  # noqa: B008 - frozen
    *,
    enough: int = 0,
    fast: bool | None = None,
) -> Polished:
    """The cheapest schedule found within `budget` bytes, from a start that need not fit.

    Where none is found, it is the one of least peak; it is never worse than the start.  The search
    ends where the extra work is `enough` (a bound of it, or 0), or after the effort times `MOVES`
    moves, a hundredth of that without numba.  `fast` says whether to compile it; the same moves
    give the same schedule either way.
    """
    simulator = Simulator(program)
    priced = context.priced(program)
    found = _weighed(simulator, start, priced, 0)
    if max(Counter(found.order).values(), default=0) > SLOTS:
        return found
    compiled = available() if fast is None else fast
    moves = int(MOVES * context.effort) // (1 if compiled or fast is not None else INTERPRETED)
    begun = memory(simulator, found.order, priced, budget, seed=context.seed)
    annealer = Annealer(begun, fast=compiled)
    tried = 0
    mean_cost, mean_bytes = _unit(priced), _unit(simulator.bytes.values())
    for temperature, weight, count in _stages(mean_cost, mean_bytes, moves):
        best = annealer.best_extra
        if context.stop() or (best is not None and best <= enough):
            break
        annealer.anneal(temperature, weight, count)
        tried += count
    better = _weighed(simulator, annealer.best() or annealer.current(), priced, tried)
    return min(replace(found, moves=tried), better, key=lambda p: p.rank(budget))


def _weighed(
    simulator: Simulator, order: Sequence[int], costs: Sequence[int | None], moves: int
) -> Polished:
    """A schedule without what nobody reads, by the simulator."""
    steps = pruned(simulator.program, Schedule.of(order)).order
    extra = sum(costs[s] or 0 for s in steps) - sum(c or 0 for c in costs)
    return Polished(steps, simulator.peak(steps), extra, moves)


def _unit(amounts: Iterable[int | None]) -> float:
    """The mean of some amounts; 1 where that is 0."""
    known = [a or 0 for a in amounts]
    return sum(known) / max(len(known), 1) or 1.0


def _stages(cost: float, size: float, moves: int) -> Iterator[tuple[float, float, int]]:
    """Temperatures and weights in turn, each with its number of moves."""
    for cooling in COOLINGS:
        stages = max(round(moves * cooling.share) // _AT_ONCE, 1)
        for stage in range(stages):
            part = stage / stages
            temperature = cooling.hot * _halved(part * cooling.halved) * cost
            weight = cooling.light / _halved(part * cooling.doubled) * cost / size
            yield temperature, weight, _AT_ONCE


def _halved(times: float) -> float:
    """About 2^-times: linear between whole numbers, so that it is the same on every machine."""
    whole = int(times)
    return (1 - (times - whole) / 2) / (1 << whole)

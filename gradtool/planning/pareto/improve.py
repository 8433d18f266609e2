"""Less work within a budget: values kept where there is room, and schedules disturbed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtool.planning.pareto.initial_solutions import price
from gradtool.planning.pareto.walk import Descent, State, Walk

_TRIALS = 6
_KICK = 8
_ADDED = 0.5  # of the kicks compute more again, the others less
_DEEPER = 0.15
_PATIENCE = 4


def reach(walk: Walk, budget: int, begins: Sequence[State], random: np.random.Generator) -> bool:
    """Disturb oversized schedules at random, and descend, until one fits or the limit."""
    while walk.left > 0 and begins:
        walk.go(begins[int(random.integers(len(begins)))])
        _disturb(walk, budget, random)
        if walk.fit(budget, Descent(patience=_PATIENCE)):
            return True
    return False


def kick(walk: Walk, budget: int, random: np.random.Generator) -> State:
    """The best after disturbing at random, descending, keeping no costlier one, to the limit."""
    best = now = walk.state
    while walk.left > 0 and best.extra:
        walk.go(now)
        _disturb(walk, budget, random)
        deep = budget - int(budget * _DEEPER * max(random.random() * 2 - 1, 0))
        walk.fit(deep, Descent(3 * now.extra // 2 + 1, trials=_TRIALS))
        if walk.peak <= budget:
            walk.trim(budget)
            if walk.extra <= now.extra:
                now = walk.state
                best = min(best, now, key=price)
    return best


def _disturb(walk: Walk, budget: int, random: np.random.Generator) -> None:
    walk.left -= len(walk.profile)
    if random.random() < _ADDED:
        _add_some(walk, budget, random)
    else:
        _take_some(walk, random)


def _take_some(walk: Walk, random: np.random.Generator) -> None:
    """Leave out some consecutive repeats."""
    repeats = len(walk.profile) - len(walk.work.reads)
    start = int(random.integers(max(repeats, 1)))
    walk.leave_out(start, 1 + int(random.integers(_KICK)))


def _add_some(walk: Walk, budget: int, random: np.random.Generator) -> None:
    """Recompute some storages that are idle near the peak."""
    idle = walk.find_idle(_high(walk, random))
    for _ in range(min(1 + int(random.integers(_KICK // 2)), idle)):
        walk.rerun_idle(int(random.integers(idle)), budget)


def _high(walk: Walk, random: np.random.Generator) -> int:
    """The number of one of the entries at the peak."""
    high = np.argsort(-walk.profile, kind="stable")[: 1 + len(walk.profile) // 4]
    return int(high[int(random.integers(len(high)))])

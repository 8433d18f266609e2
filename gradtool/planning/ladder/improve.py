"""Less work within a budget: what there is room for is kept, and what is found is disturbed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtool.planning.ladder.line import Line
from gradtool.planning.ladder.walk import State, Walk

_TRIALS = 6
_KICK = 8
_ADDED = 0.5  # of the kicks compute more again, the others less
_SLACK = 1.5
_DEEPER = 0.15
_PATIENCE = 4


def trim(walk: Walk, budget: int) -> None:
    """Run no longer again what the budget has room to keep, the dearest first."""
    line, work = walk.line, walk.work
    better = True
    while better:
        better = False
        for entry in sorted(line.repeats(), key=lambda e: (-work.costs[line.place[e]], e)):
            if (
                entry not in line.place
                or line.is_first(entry)
                or not _has_room(line, entry, budget)
            ):
                continue
            if walk.left <= 0:
                return
            before = line.extra
            line.begin()
            line.remove(entry)
            walk.pay()
            if line.extra < before and line.peak <= budget:
                line.commit()
                better = True
            else:
                line.rollback()


def _has_room(line: Line, entry: int, budget: int) -> bool:
    """Whether what a repeat makes could have stayed alive."""
    work = line.work
    for r in work.fleeting[line.place[entry]]:
        run = line.run(r, entry)
        if run is None or line.end(r, entry) == entry:
            continue
        if line.most(line.end(r, run), entry) + work.bytes[r] > budget:
            return False
    return True


def reach(walk: Walk, budget: int, begins: Sequence[State], random: np.random.Generator) -> bool:
    """Disturb schedules at random that take too much, and descend, until one fits or the limit."""
    while walk.left > 0 and begins:
        walk.go(begins[int(random.integers(len(begins)))])
        _disturb(walk, budget, random)
        if walk.fit(budget, patience=_PATIENCE):
            return True
    return False


def kick(walk: Walk, budget: int, random: np.random.Generator) -> State:
    """The best after disturbing at random, descending, keeping what costs no more, to the limit."""
    best = now = walk.state
    while walk.left > 0 and best.extra:
        walk.line.begin()
        _disturb(walk, budget, random)
        deep = budget - int(budget * _DEEPER * max(random.random() * 2 - 1, 0))
        walk.fit(deep, now.extra * _SLACK + 1, trials=_TRIALS)
        if walk.line.peak <= budget:
            trim(walk, budget)
            if walk.line.extra <= now.extra:
                walk.line.commit()
                now = walk.state
                best = min(best, now, key=lambda s: (s.extra, s.peak))
                continue
        walk.line.rollback()
    return best


def _disturb(walk: Walk, budget: int, random: np.random.Generator) -> None:
    walk.left -= len(walk.line.entries)
    if random.random() < _ADDED:
        _add_some(walk, budget, random)
    else:
        _take_some(walk.line, random)


def _take_some(line: Line, random: np.random.Generator) -> None:
    """Leave out some repeats that follow each other."""
    repeats = line.repeats()
    start = int(random.integers(max(len(repeats), 1)))
    for entry in repeats[start : start + 1 + int(random.integers(_KICK))]:
        if entry in line.place and not line.is_first(entry):
            line.remove(entry)


def _add_some(walk: Walk, budget: int, random: np.random.Generator) -> None:
    """Compute again some storages that are idle where much is alive."""
    idle = list(walk.reruns.idle(walk.line, _high(walk.line, random)))
    for _ in range(min(1 + int(random.integers(_KICK // 2)), len(idle))):
        root, _, reader = idle[int(random.integers(len(idle)))]
        walk.rerun(root, reader, budget)


def _high(line: Line, random: np.random.Generator) -> int:
    """One of the entries at which most is alive."""
    high = np.argsort(-line.profile, kind="stable")[: 1 + len(line.entries) // 4]
    return line.entries[int(high[int(random.integers(len(high)))])]

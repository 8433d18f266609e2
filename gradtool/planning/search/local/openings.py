"""Where windows are opened in a schedule, and which steps move there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gradtool.planning.search.local.surroundings import Surroundings

_DENSE = 64  # positions of a window in which all move
_SPARSE, _FREE = 200, 40  # positions of a window in which some move, and how many do


class Opening(NamedTuple):
    """A window from one position up to and without another, and the steps that move."""

    begin: int
    end: int
    free: Collection[int]


def gains(around: Surroundings, budget: int) -> list[int]:
    """What could be gained at each position: bytes above the budget or, if there are none, work."""
    over = [max(live - budget, 0) for live in around.profile]
    if any(over):
        return over
    repeats = (around.begins[step] < p for p, step in enumerate(around.order))
    return [again * (around.costs[s] or 0) for s, again in zip(around.order, repeats, strict=True)]


def dense(gains: Sequence[int]) -> Iterator[int]:
    """Where windows begin that overlap by half, those with most to gain first."""
    found = {b: sum(gains[b : b + _DENSE]) for b in range(0, len(gains), _DENSE // 2)}
    return iter(sorted((b for b in found if found[b]), key=lambda b: (-found[b], b)))


def all_from(around: Surroundings, begin: int) -> Opening:
    """A window from a position on in which all steps move."""
    end = min(begin + _DENSE, len(around.order))
    return Opening(begin, end, around.order[begin:end])


def some_around(around: Surroundings, centre: int, random: np.random.Generator) -> Opening:
    """A window around a position, in which some steps move.

    They are those that run repeatedly, nearest to the centre, up to a third; and random pairs.
    """
    order = around.order
    begin = max(min(centre - _SPARSE // 2, len(order) - _SPARSE), 0)
    end = min(begin + _SPARSE, len(order))
    near = (order[p] for p in sorted(range(begin, end), key=lambda p: abs(p - centre)))
    again = dict.fromkeys(s for s in near if around.begins[s] < around.ends[s])
    free = dict.fromkeys([order[centre], *list(again)[: _FREE // 3]])
    most = min(_FREE, len(set(order[begin:end])))
    while len(free) < most:
        p = begin + int(random.integers(end - begin))
        free |= dict.fromkeys(order[p : min(p + 2, end)])
    return Opening(begin, end, free)

"""Bound c: extra work that every schedule within a budget needs, whatever its order.

Proofs are in docs/bounds.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd

from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.mincut import ROOM, Instant


def least_budget(work: CostModel) -> int:
    """The most bytes that a step, or the results at the end, take by themselves: bound a."""
    least = work.simulator.fixed + sum(work.bytes[r] for r in work.live_out)
    touched = [_touched(work, place) for place in range(len(work.reads))]
    for place in sorted(range(len(touched)), key=lambda p: -touched[p]):
        if touched[place] <= least:
            break
        least = max(least, _alone(work, place))
    return least


def _alone(work: CostModel, place: int) -> int:
    """Bytes while a step runs for its largest output: some run has to compute it.

    Results are alive in every run, outputs never read are written in every run, and of the other
    outputs perhaps one.  The first output counts nothing if it may overwrite an input.
    """
    simulator, writes = work.simulator, work.writes[place]
    free = {work.targets[place]}
    stays = {r for r in writes if r in work.live_out or r not in simulator.read}
    held = {*work.reads[place], *(stays - free)}
    one = max((work.bytes[r] for r in writes if r not in stays | free), default=0)
    room = simulator.work[work.order[place]]
    return simulator.fixed + room + one + sum(work.bytes[r] for r in held)


def _touched(work: CostModel, place: int) -> int:
    """An upper bound of the bytes a step reads, writes and works in, always-live ones included."""
    roots = {*work.reads[place], *work.writes[place]}
    room = work.simulator.work[work.order[place]]
    return work.simulator.fixed + room + sum(work.bytes[r] for r in roots)


def chain(work: CostModel) -> list[int]:
    """A longest chain of places, each of which needs the one before.

    In every order their first runs follow each other.
    """
    depth = [1] * len(work.reads)
    before = [-1] * len(work.reads)
    for place, reads in enumerate(work.reads):
        for root in reads:
            maker = work.maker[root]
            if depth[maker] >= depth[place]:
                depth[place], before[place] = depth[maker] + 1, maker
    found = [depth.index(max(depth))] if depth else []
    while found and before[found[-1]] >= 0:
        found.append(before[found[-1]])
    return found[::-1]


def instants(work: CostModel, places: Sequence[int], room: int = ROOM) -> list[Instant]:
    """The instants of some places, with the steps before and after them in every order.

    The same ones each time that they are asked for, as their choices hold for all budgets.
    """
    for place in places:
        if (place, room) not in work.instants:
            before, after = _closure(place, work.makers), _closure(place, work.readers)
            work.instants[place, room] = Instant(work, place, before, after, room)
    return [work.instants[place, room] for place in places]


def _closure(place: int, neighbours: list[list[int]]) -> frozenset[int]:
    found: set[int] = set()
    waiting = [place]
    while waiting:
        for other in neighbours[waiting.pop()]:
            if other not in found:
                found.add(other)
                waiting.append(other)
    return frozenset(found)


def rounded(work: CostModel, bound: Fraction | float) -> int:
    """The least sum of work of whole steps from `bound` on.

    Work is a sum of costs of steps that may run again: a multiple of their common divisor.
    """
    unit = gcd(*(c for c, again in zip(work.costs, work.repeatable, strict=True) if again))
    if not unit:
        return 0
    steps = Fraction(bound) / unit
    return -(-steps.numerator // steps.denominator) * unit

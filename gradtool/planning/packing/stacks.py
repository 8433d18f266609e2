"""Stacks of the live buffers of one section: no gaps there, and free bytes stay in one piece."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import count

import numpy as np

from gradtool.planning.packing.problem import Numbers, Problem

MOST_CHAINS = 6
SPREAD, TURN = 65_536, 40_503


def stacks(problem: Problem, live: Numbers, capacity: int) -> Iterator[Numbers]:
    """Offsets of `live`, which share a section, in one way after the other; -1 for the rest.

    First in chains, by last use and by first use; then in chains by varying weights.
    """
    start, stop, size = problem.start[live], problem.stop[live], problem.size[live]
    by_end, by_start = np.lexsort((start, -stop)), np.lexsort((-stop, start))
    for up, down in (chains(start, stop, size), (by_end, by_end[:0]), (by_start, by_start[:0])):
        yield _offsets(problem, live[up], live[down], capacity)
    for turn in count(1):
        factor = (np.arange(1, len(live) + 1) * turn * TURN) % SPREAD + 1
        up, down = chains(start, stop, size * factor.astype(float))
        yield _offsets(problem, live[up], live[down], capacity)


def chains(start: Numbers, stop: Numbers, weight: Numbers) -> tuple[Numbers, Numbers]:
    """The buffers to stack on the floor, and those to hang from the ceiling.

    The heaviest chain goes down, the heaviest of the rest up, and so on; then the rest, by last
    use.  Shorter lifetimes are then further from both, so they free one room between them.
    """
    sides: tuple[list[Numbers], list[Numbers]] = ([], [])
    rest = np.arange(len(start))
    for level in range(MOST_CHAINS):
        if not rest.size:
            break
        links = chain(start[rest], stop[rest], weight[rest])
        sides[level % 2].append(rest[links])
        rest = np.delete(rest, links)
    sides[0].append(rest[np.lexsort((start[rest], -stop[rest]))])
    return np.concatenate(sides[0]), np.concatenate([rest[:0], *sides[1]])


def chain(start: Numbers, stop: Numbers, weight: Numbers) -> Numbers:
    """The heaviest sequence of nested intervals."""
    order = np.lexsort((-stop, start))
    ends, weights = stop[order].tolist(), weight[order].astype(float).tolist()
    outer, total = list[int](), list[float]()
    # Those that no other one both ends after and outweighs: by falling end, of rising total.
    until, heaviest = list[int](), list[int]()
    for k, (end, own) in enumerate(zip(ends, weights, strict=True)):
        place = bisect_right(until, -end)
        outer.append(heaviest[place - 1] if place else -1)
        total.append(own + total[outer[k]] if place else own)
        beaten = place
        while beaten < len(heaviest) and total[heaviest[beaten]] < total[k]:
            beaten += 1
        until[place:beaten], heaviest[place:beaten] = [-end], [k]
    links = [total.index(max(total))]
    while outer[links[-1]] >= 0:
        links.append(outer[links[-1]])
    return order[links[::-1]]


def _offsets(problem: Problem, up: Numbers, down: Numbers, capacity: int) -> Numbers:
    found = np.full(len(problem.size), -1, dtype=np.int64)
    found[up] = np.cumsum(problem.size[up]) - problem.size[up]
    found[down] = capacity - np.cumsum(problem.size[down])
    return found

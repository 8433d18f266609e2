"""Packing again and again, with what ended up too high placed earlier each time.

Buffers are placed one by one into the lowest gap.  Those whose top lies above a line come first in
the next turn, the most frequent ones before others.

Source: Squeaky Wheel Optimization (Joslin and Clements, JAIR 10, 1999).
"""

from __future__ import annotations

import numpy as np

from gradtool.planning.packing.problem import Numbers, Problem

PLACE = 2_000
TURNS = 40
_FAR = 1 << 62

# The order that settles ties, and the part of the way from the bound to the top where the line is:
# what was best on training graphs, alone and as a pair.
WAYS = (("S", 0.0), ("TAL", 0.25))


def squeaky(problem: Problem, least: int, work: int) -> Numbers | None:
    """The lowest packing found before the work is spent; None if that is not enough for one.

    It ends at `least`, and after `TURNS` of each way.  `work` is the pairs of buffers looked at,
    and `PLACE` of them for each that is placed.
    """
    count = len(problem.size)
    turns = min(work // (len(WAYS) * count * (count + PLACE)), TURNS)
    best: Numbers | None = None
    lowest = _FAR
    for keys, part in WAYS:
        rank = np.argsort(problem.order(keys))
        blamed = np.zeros(count, dtype=np.int64)
        for _ in range(turns):
            found = lowest_gaps(problem, np.lexsort((rank, -blamed)))
            top = found + problem.size
            height = int(top.max())
            if height < lowest:
                best, lowest = found, height
            if lowest <= least:
                return best
            blamed[top > least + int(part * (height - least))] += 1
    return best


def lowest_gaps(problem: Problem, order: Numbers) -> Numbers:
    """Place buffers one by one into the lowest gap that holds them."""
    start, stop, size = problem.start, problem.stop, problem.size
    found = np.empty(len(order), dtype=np.int64)
    placed = np.empty((4, len(order)), dtype=np.int64)
    begin, end, bottom, top = placed
    for count, item in enumerate(order.tolist()):
        first, last, extent = start[item], stop[item], size[item]
        (near,) = ((begin[:count] < last) & (end[:count] > first)).nonzero()
        reach = np.zeros(len(near) + 1, dtype=np.int64)
        np.maximum.accumulate(top[near], out=reach[1:])
        gaps = np.full(len(near) + 1, _FAR)
        np.subtract(bottom[near], reach[:-1], out=gaps[:-1])
        offset = found[item] = reach[(gaps >= extent).argmax()]
        slot = int(bottom[:count].searchsorted(offset))
        placed[:, slot + 1 : count + 1] = placed[:, slot:count]
        placed[:, slot] = first, last, offset, offset + extent
    return found

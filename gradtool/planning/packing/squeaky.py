"""Packing again and again, with what ended up too high placed earlier each time.

Buffers are placed one by one into the lowest gap.  Those whose top lies above a line come first in
the next turn, the most frequent ones before others.

Source: Squeaky Wheel Optimization (Joslin and Clements, JAIR 10, 1999).
"""

from __future__ import annotations

import numpy as np

from gradtool.planning.packing.gaps import FAR, fill
from gradtool.planning.packing.problem import Numbers, Problem

PLACE = 2_000
TURNS = 40

# The order that settles ties, and the part of the way from the bound to the top where the line is:
# what was best on training graphs, alone and together.
WAYS = (("S", 0.25), ("TLA", 0.1), ("S", 0.0), ("TCA", 0.5))


def squeaky(problem: Problem, least: int, work: int) -> Numbers | None:
    """The lowest packing found before the work is spent; None if that is not enough for one.

    It ends at `least`, and after `TURNS` of each way.  `work` is the pairs of buffers looked at,
    and `PLACE` of them for each that is placed.
    """
    count = len(problem.size)
    turns = min(work // (len(WAYS) * count * (count + PLACE)), TURNS)
    best: Numbers | None = None
    lowest = FAR
    for keys, part in WAYS:
        rank = np.argsort(problem.order(keys))
        blamed = np.zeros(count, dtype=np.int64)
        for _ in range(turns):
            found = np.empty(count, dtype=np.int64)
            fill(problem, np.lexsort((rank, -blamed)), found)
            top = found + problem.size
            height = int(top.max())
            if height < lowest:
                best, lowest = found, height
            if lowest <= least:
                return best
            blamed[top > least + int(part * (height - least))] += 1
    return best

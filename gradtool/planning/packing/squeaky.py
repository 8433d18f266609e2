"""Packing again and again, with what ended up too high placed earlier each time.

Buffers are placed one by one into the lowest gap.  Those whose top lies above a line come first in
the next turn, the most frequent ones before others.  Several ways of doing so take turns; the half
that came lowest goes on, until one way is left.

Source: Squeaky Wheel Optimization (Joslin and Clements, JAIR 10, 1999); the ways are weeded out as
by successive halving (Jamieson and Talwalkar, AISTATS 2016).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gradtool.planning.packing.gaps import FAR, filler
from gradtool.planning.packing.problem import Numbers, Problem

PLACE = 400
MOST = 128
FEWEST = 8  # turns that a way is worth

# The order that settles ties, and the part of the way from the bound to the top where the line is:
# what was best on training graphs, alone and together.
WAYS = (("TLA", 0.25), ("TA", 0.0), ("S", 0.25), ("LS", 0.25), ("TS", 0.5), ("TCA", 0.5))


def squeaky(problem: Problem, least: int, work: int) -> Numbers | None:
    """The lowest packing found before the work is spent; None if that is not enough for one.

    It ends at `least`, and after `MOST` turns.  `work` is the pairs of buffers looked at, and
    `PLACE` of them for each that is placed.
    """
    count = len(problem.size)
    turns = min(work // (count * (count + PLACE)), MOST)
    fill = filler(problem)
    ways = [_Way(problem, fill, least, *way) for way in WAYS[: turns // FEWEST]]
    rounds = len(ways).bit_length()
    best: _Way | None = None
    while ways:
        for way in ways:
            for _ in range(turns // rounds // len(ways)):
                way.turn()
                if way.lowest <= least:
                    return way.best
        ways.sort(key=lambda way: way.lowest)
        best = ways[0] if best is None or ways[0].lowest < best.lowest else best
        ways = ways[: len(ways) // 2]
    return None if best is None else best.best


@dataclass
class _Way:
    """One way to go on, what it has blamed so far, and the lowest packing that it came upon."""

    problem: Problem
    fill: Callable[[Numbers], Numbers]
    least: int
    keys: str
    part: float
    lowest: int = FAR
    best: Numbers | None = None
    _rank: Numbers = field(init=False)
    _blamed: Numbers = field(init=False)

    def __post_init__(self) -> None:
        self._rank = np.argsort(self.problem.order(self.keys))
        self._blamed = np.zeros_like(self._rank)

    def turn(self) -> None:
        """Pack once, and blame what lies above the line."""
        found = self.fill(np.argsort(self._rank - len(self._rank) * self._blamed))
        top = found + self.problem.size
        height = int(top.max())
        if height < self.lowest:
            self.best, self.lowest = found, height
        line = self.least + int(self.part * (height - self.least))
        self._blamed[top > line] += 1

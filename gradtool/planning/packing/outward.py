"""Packing from the fullest section outwards, within a capacity.

The live buffers of the fullest section are stacked first, as they must lie there almost without
gaps.  Nothing else spans that section, so the rest falls apart into sets without a section in
common.  Each is filled in alone: buffer by buffer into the first gap, and again with the buffers
without a place first.

Source: the repetition is Squeaky Wheel Optimization (Joslin and Clements, JAIR 10, 1999).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from gradtool.planning.packing.gaps import Rule, fill
from gradtool.planning.packing.problem import Numbers, Problem
from gradtool.planning.packing.stacks import stacks

PLACE = 5000
KEYS = ("S", "T", "A")
TURNS = 6


def outward(problem: Problem, capacity: int, work: int) -> Numbers | None:
    """Offsets within the capacity, if some are found before the work is spent.

    `work` is the pairs of buffers looked at, and `PLACE` of them for each that is to be placed.
    """
    peak = int(problem.profile.argmax())
    here = (problem.start <= peak) & (problem.stop > peak)
    (live,) = np.nonzero(here)
    members = apart(problem, np.flatnonzero(~here))
    filling = Filling(problem, capacity, work)
    for found in stacks(problem, live, capacity):
        filling.work -= len(live) * (PLACE + len(live))
        if filling.work <= 0:
            return None
        if all(filling.fill(those, found) for those in members):
            return found
    return None


def apart(problem: Problem, rest: Numbers) -> list[Numbers]:
    """Sets of buffers without a section in common, the largest load first."""
    if not rest.size:
        return []
    rest = rest[np.argsort(problem.start[rest], kind="stable")]
    reach = np.maximum.accumulate(problem.stop[rest])
    found = np.split(rest, np.flatnonzero(problem.start[rest][1:] >= reach[:-1]) + 1)

    def load(members: Numbers) -> int:
        window = slice(problem.start[members[0]], problem.stop[members].max())
        return int(problem.profile[window].max())

    return sorted(found, key=lambda members: -load(members))


@dataclass
class Filling:
    """Packing of buffers around placed ones, as long as there is work left."""

    problem: Problem
    capacity: int
    work: int

    @cached_property
    def orders(self) -> list[Numbers]:
        """All buffers by size, by the largest load they meet, and by area."""
        return [self.problem.order(key) for key in KEYS]

    def fill(self, members: Numbers, found: Numbers) -> bool:
        """Place all members in `found`; False if one finds no place.

        Each order is tried from the floor, then from the ceiling, and each time again with the
        buffers without a place in front, the most frequent first.
        """
        inside = np.zeros(len(found), dtype=bool)
        inside[members] = True
        fixed = self._around(members, found)
        for rule, whole in product((Rule.LOWEST, Rule.HIGHEST), self.orders):
            order = whole[inside[whole]]
            failures, fewest = np.zeros(len(found), dtype=np.int64), len(order)
            for _ in range(TURNS):
                if self.work <= 0:
                    return False
                again = order[np.argsort(-failures[order], kind="stable")]
                left, tried, pairs = fill(
                    self.problem, again, found,
                    around=fixed, capacity=self.capacity, most=fewest, rule=rule,
                )  # fmt: skip
                self.work -= PLACE * tried + pairs
                if not left:
                    return True
                found[members] = -1
                failures[left] += 1
                fewest = min(fewest, len(left))
        return False

    def _around(self, members: Numbers, found: Numbers) -> Numbers:
        """The placed buffers that live with a member, by offset."""
        start, stop = self.problem.start, self.problem.stop
        first, last = start[members].min(), stop[members].max()
        (near,) = np.nonzero((found >= 0) & (start < last) & (stop > first))
        return near[np.argsort(found[near], kind="stable")]

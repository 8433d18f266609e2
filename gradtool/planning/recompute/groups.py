"""Choice of groups of clones for the least peak: each group as a whole or not at all.

Where every layer has the same peak no group lowers it alone, and where one layer has the peak the
clones of others may raise it.  So the search starts twice, from all groups and from none, and each
time moves groups in and out where the peak lies while that lowers the peak, or the number of steps
that have it.  Then groups without which the peak is no higher are left out, the dearest first.  The
better end is taken: the lower peak, then the fewer FLOPs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtool.planning.recompute.result import Work
from gradtool.planning.recompute.toggles import Toggles
from gradtool.planning.schedule import Schedule
from gradtool.planning.simulate import Simulator

CELLS = 200_000_000
"""Positions that each way down to a peak may look at, those of every trial counted."""


def best_groups(
    simulator: Simulator, schedule: Schedule, groups: Sequence[Sequence[int]]
) -> list[int]:
    """The numbers of the groups of steps whose clones lower the peak of a schedule with them all.

    Groups that have no clone in the schedule are not among them.
    """
    of_step = {step: number for number, group in enumerate(groups) for step in group}
    positions: list[list[int]] = [[] for _ in groups]
    for position, (step, suffix) in enumerate(zip(schedule.order, schedule.suffixes, strict=True)):
        if suffix:
            positions[of_step[step]].append(position)
    numbers = [number for number, group in enumerate(positions) if group]
    inside = _Search(simulator, schedule, [positions[n] for n in numbers]).best()
    return [number for number, stays in zip(numbers, inside, strict=True) if stays]


class _Search:
    """Groups put in and out one by one; `reach` is where the bytes of each can change."""

    def __init__(self, simulator: Simulator, schedule: Schedule, groups: list[list[int]]) -> None:
        self.toggles = Toggles(simulator, schedule.order, groups)
        self.trials = 0
        self.reach = [self._reach(group) for group in self.toggles.groups]
        steps = ([schedule.order[p] for p in group] for group in groups)
        works = [Work.of(simulator.program, group) for group in steps]
        self.costs = [(work.flops, work.unknown) for work in works]

    def best(self) -> list[bool]:
        """By group, whether it is in at the least peak."""
        ends = []
        for start in (True, False):
            self.trials = CELLS // max(len(self.toggles.order), 1)
            for group in range(len(self.reach)):
                if self.toggles.inside[group] != start:
                    self.toggles.toggle(group)
            peak, _, _ = self._thin(self._descend(self._measure()))
            inside = list(self.toggles.inside)
            flops = sum(c[0] for c, stays in zip(self.costs, inside, strict=True) if stays)
            ends.append((peak, flops, sum(inside), inside))
        return min(ends)[3]

    def _measure(self) -> tuple[int, int, int]:
        """The peak, the number of positions at it, and the first of them."""
        self.trials -= 1
        profile = self.toggles.profile()
        first = int(profile.argmax()) if len(profile) else 0
        peak = int(profile[first]) if len(profile) else 0
        return peak, int(np.count_nonzero(profile == peak)), first

    def _descend(self, now: tuple[int, int, int]) -> tuple[int, int, int]:
        """Move groups that reach the peak, round by round, while it falls."""
        improved = True
        while improved:
            improved = False
            for group, (first, last) in enumerate(self.reach):
                if not first <= now[2] <= last or self.trials <= 0:
                    continue
                self.toggles.toggle(group)
                then = self._measure()
                if then[:2] < now[:2]:
                    now, improved = then, True
                else:
                    self.toggles.toggle(group)
        return now

    def _thin(self, now: tuple[int, int, int]) -> tuple[int, int, int]:
        """Take out groups that do not lower the peak."""
        order = sorted(range(len(self.costs)), key=lambda g: (*self.costs[g], g), reverse=True)
        for group in order:
            if self.toggles.inside[group]:
                self.toggles.toggle(group)
                then = self._measure()
                if then[0] <= now[0]:
                    now = then
                else:
                    self.toggles.toggle(group)
        return now

    def _reach(self, group: tuple[int, ...]) -> tuple[int, int]:
        """The first and last position at which a group changes liveness."""
        toggles, simulator = self.toggles, self.toggles.simulator
        first, last = min(group), max(group)
        for position in group:
            step = toggles.order[position]
            for root in (*simulator.reads[step], *simulator.writes[step]):
                first = min(first, toggles.touches[root][0][0])
                last = max(last, toggles.touches[root][-1][0])
        return first, last

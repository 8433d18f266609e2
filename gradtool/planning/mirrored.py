"""A mirror decision applied: only the groups of clones that lower the peak, each as a whole.

Where every layer has the same peak no group lowers it alone, and where one layer has the peak the
clones of others may raise it.  So the search starts twice, from all groups and from none, and each
time moves groups in and out where the peak lies while that lowers the peak, or the number of steps
that have it.  Then groups without which the peak is no higher are kept, the dearest first.  The
better end is taken: the lower peak, then the fewer FLOPs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradtool.planning.late import late
from gradtool.planning.mirror import Decision
from gradtool.planning.outcome import Outcome, Work, outcome
from gradtool.planning.schedule import Schedule
from gradtool.planning.simulate import Simulator
from gradtool.planning.toggles import Toggles
from gradtool.program import Program

SUFFIX = "_mirror"
CELLS = 200_000_000
"""Positions that the way down to a peak may look at, those of every trial counted."""


@dataclass(frozen=True)
class Mirrored:
    """What a decision comes to.  `applied` are the names of the steps that run again."""

    outcome: Outcome
    decided: int
    applied: tuple[str, ...]


def mirrored(program: Program, decision: Decision) -> Mirrored:
    """Apply the groups of a decision that lower the peak of `program`; else keep everything.

    Source: MXNet applies every decision; we differ in that each group has to pay.
    """
    simulator = Simulator(program)
    numbers = {step.name: i for i, step in enumerate(program.steps)}
    groups = [[numbers[name] for name in group if name in numbers] for group in decision.groups]
    again = {step: SUFFIX for group in groups for step in group}
    applied = outcome(simulator, best_groups(simulator, late(program, again), groups))
    if not applied.is_better:
        applied = outcome(simulator, late(program, {}))
    names = tuple(program.steps[s].name for s in applied.schedule.recomputed)
    return Mirrored(applied, decision.mirrored, names)


def best_groups(simulator: Simulator, schedule: Schedule, groups: list[list[int]]) -> Schedule:
    """A schedule without the clones of those groups of steps that do not lower its peak."""
    of_step = {step: number for number, group in enumerate(groups) for step in group}
    positions: list[list[int]] = [[] for _ in groups]
    for position, (step, suffix) in enumerate(zip(schedule.order, schedule.suffixes, strict=True)):
        if suffix:
            positions[of_step[step]].append(position)
    search = _Search(simulator, schedule, [p for p in positions if p])
    inside = search.best()
    out = {p for group, stays in zip(search.toggles.groups, inside, strict=True)
           if not stays for p in group}  # fmt: skip
    left = [p for p in range(len(schedule.order)) if p not in out]
    return Schedule(
        tuple(schedule.order[p] for p in left), tuple(schedule.suffixes[p] for p in left)
    )


class _Search:
    """Groups put in and out one by one; `reach` is where the bytes of each can change."""

    def __init__(self, simulator: Simulator, schedule: Schedule, groups: list[list[int]]) -> None:
        self.toggles = Toggles(simulator, schedule.order, groups)
        self.trials = max(CELLS // max(len(schedule.order), 1), 4)
        steps = [[schedule.order[p] for p in group] for group in groups]
        self.work = [Work.of(simulator.program, group) for group in steps]
        self.reach = [self._reach(group) for group in self.toggles.groups]
        self.costs = [(w.flops, w.unknown) for w in self.work]

    def best(self) -> list[bool]:
        """Which groups are in where the peak is least."""
        count = len(self.reach)
        ends = []
        for start in (True, False):
            for group in range(count):
                if self.toggles.inside[group] != start:
                    self.toggles.toggle(group)
            peak = self._thin(self._descend(self._measure()))
            inside = list(self.toggles.inside)
            flops = sum(c[0] for c, stays in zip(self.costs, inside, strict=True) if stays)
            ends.append((peak[0], flops, sum(inside), inside))
        return min(ends)[3]

    def _measure(self) -> tuple[int, int, int]:
        """The peak, how many positions have it, and the first that has it."""
        self.trials -= 1
        profile = self.toggles.profile()
        first = int(profile.argmax()) if len(profile) else 0
        peak = int(profile[first]) if len(profile) else 0
        return peak, int(np.count_nonzero(profile == peak)), first

    def _descend(self, now: tuple[int, int, int]) -> tuple[int, int, int]:
        """Move groups that reach the peak, round by round, while that lowers it."""
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
        """Take out the groups without which the peak is no higher."""
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
        """The first and last position where putting a group in changes what is alive."""
        toggles, simulator = self.toggles, self.toggles.simulator
        first, last = min(group), max(group)
        for position in group:
            step = toggles.order[position]
            for root in (*simulator.reads[step], *simulator.writes[step]):
                first = min(first, toggles.touches[root][0][0])
                last = max(last, toggles.touches[root][-1][0])
        return first, last

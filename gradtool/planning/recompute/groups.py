"""Choice of groups of clones for the least peak: each group as a whole or not at all.

Where every layer has the same peak no group lowers it alone, and where one layer has the peak the
clones of others may raise it.  So the search starts twice, from all groups and from none, and each
time moves groups in and out where the peak lies while that lowers the peak, or the number of steps
that have it.  Then groups without which the peak is no higher are left out, the dearest first.  The
better end is taken: the lower peak, then the fewer FLOPs.

The peak of a schedule whose clones come and go in groups, kept up to date group by group.

The positions are those of the schedule with every clone in it; where a clone is out, nothing runs.
For any choice of groups `profile` equals `Simulator.profile` of the remaining order, which a test
ensures; `Simulator` still has the last word on the results of a search.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtool.planning.recompute.result import Work
from gradtool.planning.schedule import Schedule
from gradtool.planning.simulate import Simulator

CELLS = 200_000_000
ABSENT = -(1 << 62)
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


class Toggles:
    """An order whose positions of each group are in or out; everything is in at first.

    `groups` are positions of `order`; positions of no group stay in.
    """

    def __init__(
        self, simulator: Simulator, order: Sequence[int], groups: Sequence[Sequence[int]]
    ) -> None:
        self.simulator = simulator
        self.order = list(order)
        self.groups = [tuple(group) for group in groups]
        self.inside = [True] * len(self.groups)
        self.present = [True] * len(self.order)
        self.touches: dict[int, list[tuple[int, bool]]] = {}
        self.beside: dict[int, list[int]] = {}
        self.spans: dict[int, list[tuple[int, int, int]]] = {}
        self.change = np.zeros(len(self.order) + 1, np.int64)
        self.extra = np.array([simulator.work[s] for s in self.order], np.int64)
        for position, step in enumerate(self.order):
            for root in simulator.reads[step]:
                self.touches.setdefault(root, []).append((position, False))
            for root in simulator.writes[step]:
                self.touches.setdefault(root, []).append((position, True))
            if simulator.donates[step]:
                for root in (simulator.targets[step], *simulator.donates[step]):
                    self.beside.setdefault(root, []).append(position)
        for root in self.touches:
            self._enter(root)
        for position, step in enumerate(self.order):
            if simulator.donates[step]:
                self._weigh(position)

    def toggle(self, group: int) -> None:
        """Take a group out if it is in, else put it in."""
        self.inside[group] = not self.inside[group]
        touched: dict[int, None] = {}
        weighed: dict[int, None] = {}
        for position in self.groups[group]:
            self.present[position] = self.inside[group]
            weighed[position] = None
            step = self.order[position]
            touched.update(dict.fromkeys(self.simulator.reads[step]))
            touched.update(dict.fromkeys(self.simulator.writes[step]))
        for root in touched:
            for first, last, size in self.spans[root]:
                self.change[first] -= size
                self.change[last + 1] += size
            self._enter(root)
            weighed.update(dict.fromkeys(self.beside.get(root, ())))
        for position in weighed:
            self._weigh(position)

    def profile(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Bytes alive at each position; below zero where nothing runs."""
        return np.cumsum(self.change[:-1]) + (self.extra + self.simulator.fixed)

    def _enter(self, root: int) -> None:
        """Find when each instance of a storage is alive."""
        live_out = root in self.simulator.live_out
        spans: list[list[int]] = []
        used: list[bool] = []
        for position, writes in self.touches[root]:
            if not self.present[position]:
                continue
            if not writes:
                spans[-1][1], used[-1] = position, True
            elif not (live_out and spans):
                spans.append([position, position])
                used.append(root not in self.simulator.read)
        if live_out:
            spans[-1][1], used[-1] = len(self.order) - 1, True
        size = self.simulator.bytes[root]
        self.spans[root] = [
            (first, last, size if live else 0)
            for (first, last), live in zip(spans, used, strict=True)
        ]
        for first, last, bytes_ in self.spans[root]:
            self.change[first] += bytes_
            self.change[last + 1] -= bytes_

    def _weigh(self, position: int) -> None:
        """Bytes at a position beside the storages alive there: workspace, less the shared bytes."""
        step = self.order[position]
        self.extra[position] = ABSENT
        if self.present[position]:
            sources = self.simulator.donates[step]
            dies = any(last == position for r in sources for _, last, _ in self.spans[r])
            shared = self._size_written(position) if dies else 0
            self.extra[position] = self.simulator.work[step] - shared

    def _size_written(self, position: int) -> int:
        spans = self.spans.get(self.simulator.targets[self.order[position]], ())
        return next((size for first, _, size in spans if first == position), 0)

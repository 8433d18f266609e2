"""The peak of a schedule whose clones come and go in groups, kept up to date group by group.

The positions are those of the schedule with every clone in it; where a clone is out, nothing runs.
For any choice of groups `profile` equals `Simulator.profile` of the remaining order, which a test
ensures; `Simulator` still has the last word on the results of a search.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtool.planning.simulate import Simulator

ABSENT = -(1 << 62)


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

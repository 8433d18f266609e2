"""The contents of a window of a schedule as a constraint programme, for OR-tools' CP-SAT.

A run of a step takes one slot, no two the same; a storage that it makes is held for an optional
interval from that slot to its last read.  Every read finds such an interval; those of one storage
do not overlap, as the latest instance is read.  What is held and the workspace of what runs never
exceed the room.

Source: the cumulative row is that of Moccasin (Bartan et al. 2023, arXiv:2304.14463), §2.  Unlike
there, first runs are in no given order, and an output may begin where an input ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from gradtool.planning.search.local.hinted import Hinted
from gradtool.planning.search.local.intervals import Held, Intervals
from gradtool.planning.search.local.runs import SPREAD, Run, Runs
from gradtool.planning.search.local.surroundings import Surroundings
from gradtool.planning.search.local.window import Window


class Contents(NamedTuple):
    """Steps in order, and whether it is proven that no others are better."""

    steps: tuple[int, ...]
    proven: bool


class _Over(NamedTuple):
    """Whether the first output of a run takes the place of an input, in a solution and now."""

    there: Any
    now: bool


class Retention:
    """The programme of a window, with what runs there now as a hint."""

    def __init__(self, around: Surroundings, window: Window) -> None:
        self.window, self.simulator = window, around.simulator
        self.hinted = Hinted(SPREAD * len(window.steps))
        self.model = self.hinted.model
        self.runs = Runs(self.hinted, around, window)
        self.held = Intervals(self.runs)
        self.demands: list[tuple[Any, int]] = []
        for root in window.entering:
            self._demand(root, 0, self.held.of[root][0], 0)
        for step, runs in self.runs.of.items():
            for run in runs:
                self._weigh(step, run, self._read(step, run))

    def improved(self, time: float, stop: Callable[[], bool] = lambda: False) -> Contents | None:
        """Contents that cost no more, or need no more where those of now do not fit; None if none.

        `time` is CP-SAT's deterministic time; it ends early where `stop` says so.
        """
        sizes = [size for _, size in self.demands]
        grain = math.gcd(*sizes) or 1
        room: Any = self.window.room // grain
        goal: Any = self.runs.work()
        if not self.window.fits:
            peak = -(-self.window.peak // grain)
            goal = room = self.hinted.number(max(room, 0), peak, peak)
        self.model.add_cumulative(
            [interval for interval, _ in self.demands], [size // grain for size in sizes], room
        )
        if not self.hinted.minimize(goal, time, stop):
            return None
        return Contents(self.runs.chosen(), self.hinted.proven)

    def _read(self, step: int, run: Run) -> _Over | None:
        """Let a run find what it reads; whether it may write over what it reads last."""
        donates, dying = self.simulator.donates[step], []
        for root in self.simulator.reads[step]:
            if root in self.window.settled:
                continue
            covers, now = [], self.held.read_now(root, run)
            for held in self.held.of.get(root, []):
                cover = self.hinted.literal(now=held is now)
                covers.append(cover)
                self.model.add_implication(cover, held.there)
                self.model.add(held.end > run.slot).only_enforce_if(cover)
                if held.run is not None:
                    self.model.add(held.run.slot < run.slot).only_enforce_if(cover)
                if root in donates:
                    dying.append(self._dies(cover, held, run, read_now=held is now))
            self.model.add_bool_or([*covers, run.there.negated()])
        if not dying:
            return None
        over = self.hinted.literal(now=(taken := any(d.now for d in dying)))
        self.model.add_bool_or([*(d.there for d in dying), over.negated()])
        return _Over(over, taken)

    def _dies(self, cover: Any, held: Held, run: Run, *, read_now: bool) -> _Over:
        """Whether an instance is read by a run, and by none after it."""
        now = read_now and run.now is not None and held.now == run.now + 1
        dies = self.hinted.literal(now=now)
        self.model.add_implication(dies, cover)
        self.model.add(held.end == run.slot + 1).only_enforce_if(dies)
        return _Over(dies, now)

    def _weigh(self, step: int, run: Run, over: _Over | None) -> None:
        """Count what a run makes, from its slot on or right behind it, and its workspace."""
        for root in self.simulator.writes[step]:
            begin, now = run.slot, run.now or 0
            if root == self.simulator.targets[step] and over is not None:
                now += over.now
                begin = self.hinted.slot(now)
                self.model.add(begin == run.slot + over.there)
            for held in self.held.of[root]:
                if held.run is run:
                    self._demand(root, begin, held, now)
        if self.simulator.work[step]:
            self.demands.append((self.runs.at(run), self.simulator.work[step]))

    def _demand(self, root: int, begin: Any, held: Held, now: int) -> None:
        """Count the bytes of an instance from a slot on, which now is slot `now`."""
        size = self.simulator.bytes[root]
        if size:
            length = self.hinted.slot(0 if held.now is None else held.now - now)
            interval = self.model.new_optional_interval_var(
                begin, length, held.end, held.there, ""
            )  # fmt: skip
            self.demands.append((interval, size))

"""The contents of a window of a schedule as a constraint programme, for OR-tools' CP-SAT.

A run of a step takes one slot, no two the same; a storage that it makes is held for an optional
interval from that slot to its last read.  Every read finds such an interval; those of one storage
do not overlap, as the latest instance is read.  What is held and the workspace of what runs never
exceed the room.

Source: retention intervals, their number per value and the cumulative row are those of Moccasin
(Bartan et al. 2023, arXiv:2304.14463), §2.  Unlike there, first runs are in no given order, what
was computed before the window is held for as long as the window likes, and an output may begin
where an input ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from gradtool.planning.polish.hinted import Hinted
from gradtool.planning.polish.window import Surroundings, Window

_SPREAD = 2  # slots for each step that runs now: room for another one before it


class _Run(NamedTuple):
    """A run of a step: whether there is one, its slot, and that which it has now if it runs."""

    there: Any
    slot: Any
    now: int | None


class _Held(NamedTuple):
    """An instance of a storage: whether it is held, up to and without which slot, who makes it.

    `now` is where it ends now, None where it is not held; nobody makes what comes in.
    """

    there: Any
    end: Any
    run: _Run | None
    now: int | None


class _Over(NamedTuple):
    """Whether the first output of a run takes the place of an input, in a solution and now."""

    there: Any
    now: bool


class Retention:
    """The programme of a window, with what runs there now as a hint."""

    def __init__(self, around: Surroundings, window: Window) -> None:
        self.around, self.window, self.simulator = around, window, around.simulator
        self.hinted = Hinted(_SPREAD * len(window.steps))
        self.model = self.hinted.model
        self.demands: list[tuple[Any, int]] = []
        self.runs = {s: list(self._runs(s, count)) for s, count in window.runs.items()}
        self.held = {r: [self._coming(r, last)] for r, last in window.entering.items()}
        for step in self.runs:
            for root in self.simulator.writes[step]:
                self.held.setdefault(root, []).extend(self._made(step, root))
        for step, runs in self.runs.items():
            for run in runs:
                self._weigh(step, run, self._read(step, run))
        for root in window.owed:
            self._owe(root)
        self._one_at_a_time()

    def _slot(self, position: int) -> int:
        """The slot of what runs at a position now; the last one for what runs after the window."""
        return min(_SPREAD * (position - self.window.begin) + 1, self.hinted.slots - 1)

    def _runs(self, step: int, count: int) -> Iterator[_Run]:
        """The runs of a step; those of a frozen one stay where they are."""
        frozen, hinted = step in self.window.frozen, self.hinted
        now = [self._slot(p) for p in self.window.positions(step)]
        for k in range(count):
            present = now[k] if k < len(now) else None
            due = k == 0 and self._is_due(step)
            must = frozen or due or not self.around.may_repeat(step)
            there = hinted.constant(1) if must else hinted.literal(now=present is not None)
            move = hinted.number(0, hinted.slots - 1, present or 0) if not frozen else None
            yield _Run(there, hinted.constant(now[k]) if move is None else move, present)

    def _is_due(self, step: int) -> bool:
        """Whether a step has a result and has not run before."""
        writes = self.simulator.writes[step]
        is_result = not self.simulator.pinned.isdisjoint(writes)
        return step in self.window.first and (is_result or self.simulator.read.isdisjoint(writes))

    def _one_at_a_time(self) -> None:
        """Slots are taken once, the runs of a step in order; some steps keep their order."""
        model = self.model
        for runs in self.runs.values():
            for one, other in pairwise(runs):
                model.add_implication(other.there, one.there)
                model.add(one.slot < other.slot).only_enforce_if(other.there)
        for before, after in self.window.before:
            for run in self.runs[before]:
                model.add(run.slot < self.runs[after][0].slot).only_enforce_if(run.there)
        model.add_no_overlap(self._at(run) for runs in self.runs.values() for run in runs)

    def _at(self, run: _Run) -> Any:
        return self.model.new_optional_fixed_size_interval_var(run.slot, 1, run.there, "")

    def _coming(self, root: int, last: int) -> _Held:
        """A storage that comes in and is read at position `last` last, until its step runs here."""
        now = self._slot(last) + 1
        held = _Held(self.hinted.constant(1), self.hinted.slot(now), None, now)
        self._demand(root, 0, held, 0)
        self._ends_before(held, self.runs.get(self.around.maker[root], [])[:1])
        return held

    def _made(self, step: int, root: int) -> Iterator[_Held]:
        """The instances of a storage that the runs of a step make; of a result, the first ever."""
        runs, hinted = self.runs[step], self.hinted
        if root in self.simulator.pinned:
            if step in self.window.first:
                yield _Held(runs[0].there, hinted.constant(hinted.slots), runs[0], hinted.slots)
            return
        positions = self.window.positions(step)
        for k, run in enumerate(runs):
            if root not in self.simulator.read:
                now = None if run.now is None else run.now + 1
                held = _Held(run.there, hinted.slot(now or 0), run, now)
                self.model.add(held.end == run.slot + 1).only_enforce_if(run.there)
            else:
                last = self.around.last.get((root, positions[k])) if k < len(positions) else None
                now = None if last is None else self._slot(last) + 1
                there = hinted.literal(now=now is not None)
                held = _Held(there, hinted.slot(now or 0), run, now)
                self.model.add_implication(there, run.there)
                self.model.add(held.end > run.slot).only_enforce_if(there)
                self._ends_before(held, runs[k + 1 : k + 2])
            yield held

    def _ends_before(self, held: _Held, runs: list[_Run]) -> None:
        for run in runs:
            self.model.add(held.end <= run.slot).only_enforce_if([held.there, run.there])

    def _read(self, step: int, run: _Run) -> _Over | None:
        """Let a run find what it reads; whether it may write over what it reads last."""
        takes, dying = self.simulator.takes[step], []
        for root in self.simulator.reads[step]:
            if root in self.window.settled:
                continue
            covers, now = [], self._read_now(root, run)
            for held in self.held.get(root, []):
                cover = self.hinted.literal(now=held is now)
                covers.append(cover)
                self.model.add_implication(cover, held.there)
                self.model.add(held.end > run.slot).only_enforce_if(cover)
                if held.run is not None:
                    self.model.add(held.run.slot < run.slot).only_enforce_if(cover)
                if root in takes:
                    dying.append(self._dies(cover, held, run, read_now=held is now))
            self.model.add_bool_or([*covers, run.there.negated()])
        if not dying:
            return None
        over = self.hinted.literal(now=(taken := any(d.now for d in dying)))
        self.model.add_bool_or([*(d.there for d in dying), over.negated()])
        return _Over(over, taken)

    def _dies(self, cover: Any, held: _Held, run: _Run, *, read_now: bool) -> _Over:
        """Whether an instance is read by a run, and by none after it."""
        now = read_now and run.now is not None and held.now == run.now + 1
        dies = self.hinted.literal(now=now)
        self.model.add_implication(dies, cover)
        self.model.add(held.end == run.slot + 1).only_enforce_if(dies)
        return _Over(dies, now)

    def _read_now(self, root: int, run: _Run) -> _Held | None:
        """The instance of a storage that a run reads now: the latest before it."""
        found = None
        for held in self.held.get(root, []) if run.now is not None else []:
            begin = 0 if held.run is None else held.run.now
            if begin is not None and held.now is not None and begin <= (run.now or 0):
                found = held
        return found

    def _weigh(self, step: int, run: _Run, over: _Over | None) -> None:
        """Count what a run makes, from its slot on or right behind it, and its workspace."""
        for place, root in enumerate(self.simulator.writes[step]):
            begin, now = run.slot, run.now or 0
            if place == 0 and over is not None:
                now += over.now
                begin = self.hinted.slot(now)
                self.model.add(begin == run.slot + over.there)
            for held in self.held[root]:
                if held.run is run:
                    self._demand(root, begin, held, now)
        if self.simulator.work[step]:
            self.demands.append((self._at(run), self.simulator.work[step]))

    def _demand(self, root: int, begin: Any, held: _Held, now: int) -> None:
        """Count the bytes of an instance from a slot on, which now is slot `now`."""
        size = self.simulator.bytes[root]
        if size:
            length = self.hinted.slot(0 if held.now is None else held.now - now)
            interval = self.model.new_optional_interval_var(
                begin, length, held.end, held.there, ""
            )  # fmt: skip
            self.demands.append((interval, size))

    def _owe(self, root: int) -> None:
        """Hold some instance to the end of the window."""
        covers = []
        for held in self.held[root]:
            cover = self.hinted.literal(now=held.now == self.hinted.slots)
            covers.append(cover)
            self.model.add_implication(cover, held.there)
            self.model.add(held.end == self.hinted.slots).only_enforce_if(cover)
        self.model.add_bool_or(covers)

    def improved(self, time: float) -> tuple[int, ...] | None:
        """Contents that cost no more, or need no more where those of now do not fit; None if none.

        `time` is CP-SAT's deterministic time.
        """
        sizes = [size for _, size in self.demands]
        grain = math.gcd(*sizes) or 1
        room: Any = self.window.room // grain
        goal: Any = self._work()
        if self.window.peak > self.window.room:
            peak = -(-self.window.peak // grain)
            goal = room = self.hinted.number(max(room, 0), peak, peak)
        self.model.add_cumulative(
            [interval for interval, _ in self.demands], [size // grain for size in sizes], room
        )
        if not self.hinted.minimize(goal, time):
            return None
        value = self.hinted.value
        runs = ((step, run) for step, runs in self.runs.items() for run in runs if value(run.there))
        return tuple(step for _, step in sorted((value(run.slot), step) for step, run in runs))

    def _work(self) -> Any:
        """What all runs cost, in the largest unit that divides every cost."""
        costs = {step: self.around.costs[step] or 0 for step in self.runs}
        unit = math.gcd(*costs.values()) or 1
        return sum(costs[s] // unit * run.there for s, runs in self.runs.items() for run in runs)

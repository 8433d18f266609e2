"""Intervals of slots over which a window holds instances of storages.

Source: retention intervals and their number per value are those of Moccasin (Bartan et al. 2023,
arXiv:2304.14463), §2.  Unlike there, what was computed before the window is held for as long as the
window likes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from gradtool.planning.search.local.runs import Run, Runs


class Held(NamedTuple):
    """An instance of a storage: whether it is held, up to and without which slot, who makes it.

    `now` is where it ends now, None where it is not held; nobody makes what comes in.
    """

    there: Any
    end: Any
    run: Run | None
    now: int | None


class Intervals:
    """The instances of every storage that may be held in a window, `of` a storage in order."""

    def __init__(self, runs: Runs) -> None:
        self.runs, self.hinted, self.window = runs, runs.hinted, runs.window
        self.model, self.simulator = runs.hinted.model, runs.around.simulator
        self.of = {root: [self._coming(root, last)] for root, last in self.window.entering.items()}
        for step in runs.of:
            for root in self.simulator.writes[step]:
                self.of.setdefault(root, []).extend(self._made(step, root))
        for root in self.window.owed:
            self._owe(root)

    def read_now(self, root: int, run: Run) -> Held | None:
        """The instance of a storage that a run reads now: the latest before it."""
        found = None
        for held in self.of.get(root, []) if run.now is not None else []:
            begin = 0 if held.run is None else held.run.now
            if begin is not None and held.now is not None and begin <= (run.now or 0):
                found = held
        return found

    def _coming(self, root: int, last: int) -> Held:
        """A storage that comes in and is read at position `last` last, until its step runs here."""
        now = self.runs.slot(last) + 1
        held = Held(self.hinted.constant(1), self.hinted.slot(now), None, now)
        self._ends_before(held, self.runs.of.get(self.runs.around.maker[root], [])[:1])
        return held

    def _made(self, step: int, root: int) -> Iterator[Held]:
        """The instances of a storage that the runs of a step make; of a result, the first ever."""
        runs, hinted = self.runs.of[step], self.hinted
        if root in self.simulator.live_out:
            if step in self.window.first:
                yield Held(runs[0].there, hinted.constant(hinted.slots), runs[0], hinted.slots)
            return
        positions = self.window.positions(step)
        for k, run in enumerate(runs):
            if root not in self.simulator.read:
                yield self._unread(run)
                continue
            last = self.runs.around.last.get((root, positions[k])) if k < len(positions) else None
            now = None if last is None else self.runs.slot(last) + 1
            there = hinted.literal(now=now is not None)
            held = Held(there, hinted.slot(now or 0), run, now)
            self.model.add_implication(there, run.there)
            self.model.add(held.end > run.slot).only_enforce_if(there)
            self._ends_before(held, runs[k + 1 : k + 2])
            yield held

    def _unread(self, run: Run) -> Held:
        """What nobody ever reads is held while its step runs."""
        now = None if run.now is None else run.now + 1
        held = Held(run.there, self.hinted.slot(now or 0), run, now)
        self.model.add(held.end == run.slot + 1).only_enforce_if(run.there)
        return held

    def _ends_before(self, held: Held, runs: list[Run]) -> None:
        for run in runs:
            self.model.add(held.end <= run.slot).only_enforce_if([held.there, run.there])

    def _owe(self, root: int) -> None:
        """Hold some instance to the end of the window."""
        covers = []
        for held in self.of[root]:
            cover = self.hinted.literal(now=held.now == self.hinted.slots)
            covers.append(cover)
            self.model.add_implication(cover, held.there)
            self.model.add(held.end == self.hinted.slots).only_enforce_if(cover)
        self.model.add_bool_or(covers)

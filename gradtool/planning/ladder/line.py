"""A schedule that is changed run by run: the bytes alive at each entry follow every change.

An entry is a number; the entries in increasing order are the schedule.  Between any two there is
room for more, so that a step can run anywhere.  What a change costs does not depend on the length
of the schedule, but for moving the tails of arrays.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gradtool.planning.flow import Integers
from gradtool.planning.search.cost_model import CostModel

# Between two entries there is room for so many halvings.
_SPACING = 1 << 60
# A line grows to so many times what it and the order without recompute link.
_GROWTH = 2


def room(work: CostModel, places: Sequence[int]) -> int:
    """How many links a line has room for that begins as a schedule; see `CostModel.links`."""
    return _GROWTH * (sum(work.links) + sum(map(work.links.__getitem__, places)))


class _Mark(NamedTuple):
    """How things stood: the profile, the extra work, the links."""

    profile: Integers
    extra: int
    used: int


class Line:
    """The entries of a schedule, which step runs at each, and the bytes alive there.

    `runs` are by place of the base order the entries at which its step runs, `uses` those that read
    a storage.  An instance of a storage lives from a run of its step to the last use before the
    next run.  What nobody reads is taken out at once.  `extra` is the cost of all runs but one of
    every step.  Bytes are those of `Simulator.profile`.
    """

    def __init__(self, work: CostModel, places: Sequence[int] | None = None) -> None:
        self.work = work
        order = range(len(work.reads)) if places is None else places
        self.entries = [(i + 1) * _SPACING for i in range(len(order))]
        self.place = dict(zip(self.entries, order, strict=True))
        self.runs: list[list[int]] = [[] for _ in work.reads]
        self.uses: dict[int, list[int]] = {r: [] for r in work.maker}
        for entry, p in self.place.items():
            self.runs[p].append(entry)
            for r in work.reads[p]:
                self.uses[r].append(entry)
        self.extra = sum(work.costs[p] for p in order) - work.total
        self.used = sum(work.links[p] for p in order)
        self._room = room(work, order)
        self._saved: dict[int, int] = {}
        self._log: list[tuple[int, int, int]] = []
        self._mark: _Mark | None = None
        self.changes = 0
        self._bytes: Integers = np.zeros(2 * len(self.entries) + 16, dtype=np.int64)
        self._weigh()

    @property
    def profile(self) -> Integers:
        """Bytes alive at each entry."""
        return self._bytes[: len(self.entries)]

    @property
    def peak(self) -> int:
        """The most bytes alive at once."""
        return int(self.profile.max(initial=self.work.simulator.fixed))

    @property
    def places(self) -> list[int]:
        """The steps in running order."""
        return [self.place[e] for e in self.entries]

    def at(self, entry: int) -> int:
        """How many entries are before one."""
        return bisect_left(self.entries, entry)

    def most(self, after: int, before: int) -> int:
        """The most bytes alive at an entry between two others; 0 if there is none."""
        i, j = bisect_right(self.entries, after), self.at(before)
        return int(np.maximum.reduce(self._bytes[i:j])) if i < j else 0

    # ------------------------------------------------------------------ instances

    def run(self, r: int, entry: int) -> int | None:
        """The run that makes the instance of a storage which an entry reads, or would read."""
        runs = self.runs[self.work.maker[r]]
        i = bisect_left(runs, entry)
        return runs[i - 1] if i else None

    def end(self, r: int, run: int) -> int:
        """The last use of an instance; its run if nobody reads it."""
        runs, uses = self.runs[self.work.maker[r]], self.uses[r]
        i = bisect_right(runs, run)
        j = bisect_left(uses, runs[i]) if i < len(runs) else len(uses)
        return uses[j - 1] if j and uses[j - 1] > run else run

    def until(self, r: int, entry: int) -> int | None:
        """The last use of the instance that an entry reads, or would read."""
        runs, uses = self.runs[self.work.maker[r]], self.uses[r]
        i = bisect_left(runs, entry)
        if not i:
            return None
        j = bisect_left(uses, runs[i]) if i < len(runs) else len(uses)
        return uses[j - 1] if j and uses[j - 1] > runs[i - 1] else runs[i - 1]

    def is_first(self, entry: int) -> bool:
        """Whether a step runs for the first time at an entry."""
        return self.runs[self.place[entry]][0] == entry

    def is_idle(self, entry: int) -> bool:
        """Whether nobody reads what an entry makes, which is no result either."""
        work, p = self.work, self.place[entry]
        if work.is_result[p] and self.is_first(entry):
            return False
        return all(self.end(r, entry) == entry for r in work.fleeting[p])

    def repeats(self) -> list[int]:
        """The entries that run a step again."""
        return sorted(e for runs in self.runs for e in runs[1:])

    # -------------------------------------------------------------------- changes

    def before(self, entry: int) -> int | None:
        """A free number right before an entry; None if there is no room."""
        i = self.at(entry)
        previous = self.entries[i - 1] if i else 0
        free = (previous + entry) // 2
        return free if free > previous else None

    def add(self, entry: int, p: int) -> None:
        """Let a step run at a free number. All that it reads has run before."""
        dirty, dead = {entry}, list[int]()
        self._insert(entry, p, dirty, dead)
        self._settle(dirty, dead)

    def remove(self, entry: int) -> None:
        """Let a step no longer run at an entry. Who reads it finds an earlier run."""
        dirty, dead = set[int](), list[int]()
        self._delete(entry, dirty, dead)
        self._settle(dirty, dead)

    def has_room(self, p: int) -> bool:
        """Whether a step may run once more: a line does not grow without end."""
        return self.used + self.work.links[p] <= self._room

    def begin(self) -> None:
        """Remember how things stand.  `changes` are the runs put in or taken out since then."""
        self._mark = _Mark(self.profile.copy(), self.extra, self.used)
        self.changes = 0

    def commit(self) -> None:
        """Keep what was changed."""
        self._mark = None
        self._log.clear()

    def rollback(self) -> None:
        """Undo what was changed."""
        assert self._mark is not None  # noqa: S101 - it was begun
        profile, self.extra, self.used = self._mark
        for sign, entry, was in reversed(self._log):
            if not sign:
                self._saved[entry] = was
                continue
            change = _take if sign > 0 else insort
            change(self.entries, entry)
            change(self.runs[was], entry)
            for r in self.work.reads[was]:
                change(self.uses[r], entry)
            if sign > 0:
                del self.place[entry]
                self._saved.pop(entry, None)
            else:
                self.place[entry] = was
        self._bytes[: len(profile)] = profile
        self.commit()

    def _note(self, sign: int, entry: int, was: int) -> None:
        """Log that an entry was put in (1), taken out (-1), or saved so many bytes before (0)."""
        self.changes += abs(sign)
        if self._mark is not None:
            self._log.append((sign, entry, was))

    # ---------------------------------------------------------------------- bytes

    def _weigh(self) -> None:
        """Count all bytes anew, and what is saved by writing in place."""
        work, places = self.work, list(self.place.values())
        born, last, sizes = list[int](), list[int](), list[int]()
        latest: dict[int, int] = {}
        over: list[tuple[int, int, int | None, list[int]]] = []
        for i, p in enumerate(places):
            for r in work.reads[p]:
                last[latest[r]] = i
            donors = [latest[r] for r in work.donates[p]]
            for r in work.writes[p]:
                stays = r in work.live_out
                if stays and r in latest:
                    continue
                latest[r] = len(born)
                born.append(i)
                last.append(i)
                sizes.append(work.bytes[r])
            if donors:
                over.append((i, p, latest.get(work.targets[p]), donors))
        for r in filter(work.live_out.__contains__, latest):
            last[latest[r]] = len(places)
        change = np.zeros(len(places) + 2, dtype=np.int64)
        counted = np.array(last, dtype=np.int64) > np.array(born, dtype=np.int64)
        held = np.where(counted, np.array(sizes, dtype=np.int64), 0)
        np.add.at(change, born, held)
        np.subtract.at(change, np.array(last, dtype=np.int64) + 1, held)
        beside = np.array([work.beside[p] for p in places], dtype=np.int64)
        self._bytes[: len(places)] = (
            work.simulator.fixed + np.cumsum(change[: len(places)]) + beside
        )
        for i, p, target, donors in over:
            if target is None or born[target] != i:
                continue
            made = work.targets[p] not in work.simulator.read or last[target] > i
            if made and any(last[d] == i for d in donors):
                self._bytes[i] -= work.bytes[work.targets[p]]
                self._saved[self.entries[i]] = work.bytes[work.targets[p]]

    def _change(self, first: int, last: int, size: int) -> None:
        """Add bytes from one entry to another, both included."""
        self._bytes[self.at(first) : bisect_right(self.entries, last)] += size

    def _save(self, entry: int) -> None:
        """Count what an entry saves by writing over an input that ends there."""
        work, p = self.work, self.place[entry]
        if not work.donates[p]:
            return
        target, saved = work.targets[p], 0
        if self._is_made(target, entry) and any(self._ends(r, entry) for r in work.donates[p]):
            saved = work.bytes[target]
        before = self._saved.get(entry, 0)
        if saved != before:
            self._bytes[self.at(entry)] += before - saved
            self._saved[entry] = saved
            self._note(0, entry, before)

    def _is_made(self, r: int, entry: int) -> bool:
        if r in self.work.live_out:
            return self.is_first(entry)
        return r not in self.work.simulator.read or self.end(r, entry) > entry

    def _ends(self, r: int, entry: int) -> bool:
        uses = self.uses[r]
        j = bisect_left(uses, entry)
        if j == len(uses) or uses[j] != entry:
            return False
        runs = self.runs[self.work.maker[r]]
        i = bisect_left(runs, entry)
        return i > 0 and (j + 1 == len(uses) or (i < len(runs) and uses[j + 1] >= runs[i]))

    def _use(self, r: int, entry: int, dirty: set[int]) -> None:
        run = self.run(r, entry)
        assert run is not None, (r, entry)  # noqa: S101 - see `add`
        end = self.end(r, run)
        insort(self.uses[r], entry)
        if end < entry and r not in self.work.live_out:
            self._change(run if end == run else end + 1, entry, self.work.bytes[r])
        dirty.update((run, end, entry))

    def _unuse(self, r: int, entry: int, dirty: set[int], dead: list[int]) -> None:
        _take(self.uses[r], entry)
        run = self.run(r, entry)
        assert run is not None, (r, entry)  # noqa: S101 - it was read
        end = self.end(r, run)
        if end < entry and r not in self.work.live_out:
            self._change(run if end == run else end + 1, entry, -self.work.bytes[r])
            if end == run:
                dead.append(run)
        dirty.update((run, end))

    def _divide(self, r: int, entry: int, dirty: set[int], dead: list[int]) -> None:
        """From a new run on, whoever reads a storage later reads that."""
        run, end = self.run(r, entry), self.end(r, entry)
        if end == entry:
            return
        size = self.work.bytes[r]
        dirty.add(end)
        if run is None:
            self._change(entry, end, size)
            return
        last = self.end(r, run)
        self._change(run if last == run else last + 1, entry - 1, -size)
        dirty.update((run, last))
        if last == run:
            dead.append(run)

    def _join(self, r: int, run: int | None, entry: int, end: int, dirty: set[int]) -> None:
        """A run is gone: whoever read it until `end` reads the one before it, if there is one."""
        if end == entry:
            return
        size = self.work.bytes[r]
        dirty.add(end)
        if run is None:
            self._change(entry, end, -size)
            return
        uses = self.uses[r]
        i = bisect_left(uses, entry)
        last = max(uses[i - 1], run) if i else run
        self._change(run if last == run else last + 1, entry - 1, size)
        dirty.update((run, last))

    def _insert(self, entry: int, p: int, dirty: set[int], dead: list[int]) -> None:
        work, i, count = self.work, self.at(entry), len(self.entries)
        alive = self._between(i)
        if count + 1 >= len(self._bytes):
            self._bytes = np.concatenate([self._bytes, np.zeros_like(self._bytes)])
        self._bytes[i + 1 : count + 1] = self._bytes[i:count].copy()
        self._bytes[i] = alive + work.beside[p]
        self.entries.insert(i, entry)
        self.place[entry] = p
        for r in work.reads[p]:
            self._use(r, entry, dirty)
        self._stay(p, entry)
        insort(self.runs[p], entry)
        for r in work.fleeting[p]:
            self._divide(r, entry, dirty, dead)
        self.extra += work.costs[p]
        self.used += work.links[p]
        self._note(1, entry, p)

    def _stay(self, p: int, entry: int, sign: int = 1) -> None:
        """Results live from the first run: count where a run is before all others."""
        runs = self.runs[p]
        if self.work.staying[p] and (not runs or entry < runs[0]):
            last = runs[0] - 1 if runs else self.entries[-1]
            self._change(entry, last, sign * self.work.staying[p])

    def _between(self, i: int) -> int:
        """Bytes alive between entry number i and the one before."""
        work = self.work
        if not i:
            return work.simulator.fixed
        entry = self.entries[i - 1]
        p = self.place[entry]
        live = int(self._bytes[i - 1]) - work.beside[p] + self._saved.get(entry, 0)
        ended = (r for r in work.reads[p] if r not in work.live_out and self._ends(r, entry))
        return live - sum(work.bytes[r] for r in ended)

    def _delete(self, entry: int, dirty: set[int], dead: list[int]) -> None:
        work, p = self.work, self.place[entry]
        ends = [(r, self.run(r, entry), self.end(r, entry)) for r in work.fleeting[p]]
        _take(self.runs[p], entry)
        self._stay(p, entry, -1)
        for r, run, end in ends:
            self._join(r, run, entry, end, dirty)
        for r in work.reads[p]:
            self._unuse(r, entry, dirty, dead)
        i, count = self.at(entry), len(self.entries)
        self._bytes[i : count - 1] = self._bytes[i + 1 : count].copy()
        del self.entries[i], self.place[entry]
        self._note(0, entry, self._saved.pop(entry, 0))
        self.extra -= work.costs[p]
        self.used -= work.links[p]
        self._note(-1, entry, p)

    def _settle(self, dirty: set[int], dead: list[int]) -> None:
        """Take out what nobody reads any more, and count what is written in place."""
        while dead:
            entry = dead.pop()
            if entry in self.place and self.is_idle(entry):
                self._delete(entry, dirty, dead)
        for entry in dirty:
            if entry in self.place:
                self._save(entry)


def _take(entries: list[int], entry: int) -> None:
    del entries[bisect_left(entries, entry)]

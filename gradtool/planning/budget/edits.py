"""What to change around an entry of a schedule so that fewer bytes are alive there.

A storage that is alive over the entry without being touched by it can be computed again behind it;
its readers can run before it, or its maker behind it.  A step that runs again can stop doing so.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gradtool.overwriting import write_after_read
from gradtool.planning.budget.rework import Rework
from gradtool.planning.budget.timeline import Life, Timeline
from gradtool.planning.flow import Integers

_GROUP = 6
_GAPS = 48


class Edit(NamedTuple):
    """Entries that go, and places that come in before entry `at`."""

    gone: tuple[int, ...]
    at: int
    runs: tuple[int, ...]

    def applied(self, places: Sequence[int]) -> list[int]:
        """The places of the changed schedule."""
        gone = set(self.gone)
        before = [p for e, p in enumerate(places[: self.at]) if e not in gone]
        behind = [p for e, p in enumerate(places[self.at :], self.at) if e not in gone]
        return [*before, *self.runs, *behind]


class Proposal(NamedTuple):
    """An edit, the extra work it adds, and about what is then alive at the entries."""

    edit: Edit
    cost: int
    profile: Integers


class _Gap(NamedTuple):
    """Between entries `last` and `next` an instance of a storage is alive without being touched.

    `price` is the work of its step per byte above the budget that it takes.
    """

    price: float
    root: int
    last: int
    next: int


class Edits:
    """The edits of a program's schedules within a budget in bytes.

    Steps that draw at random never pass each other, nor does what reads a parameter pass what
    overwrites it.
    """

    def __init__(self, work: Rework, budget: int) -> None:
        self.work = work
        self.budget = budget
        place = {step: p for p, step in enumerate(work.order)}
        self.apart: dict[int, set[int]] = {}
        for one, other in write_after_read(work.program):
            self.apart.setdefault(place[one], set()).add(place[other])
            self.apart.setdefault(place[other], set()).add(place[one])
        steps = work.program.steps
        random = {p for step, p in place.items() if not steps[step].recomputable}
        for p in random:
            self.apart.setdefault(p, set()).update(random)

    def around(self, line: Timeline, peak: int) -> Iterator[Proposal]:
        """The edits that may lower what is alive at an entry.

        Of what could be computed again, only what takes least work per byte and entry is.
        """
        gaps = sorted(self._over(line, peak))
        for gap in gaps[:_GAPS]:
            yield from self._again(line, gap, peak)
        erased = set() if line.first[peak] else {peak}
        for gap in gaps:
            yield from self._pulled(line, gap.next, peak)
            if line.places[gap.last] == self.work.maker[gap.root]:
                yield from self._pushed(line, gap.last, peak)
            if not line.first[gap.next]:
                erased.add(gap.next)
        for entry in sorted(erased):
            yield self._erased(line, entry)

    def _over(self, line: Timeline, peak: int) -> Iterator[_Gap]:
        """What is alive over an entry and not touched there."""
        work, here = self.work, line.places[peak]
        above = np.cumsum(line.profile > self.budget).tolist()
        untouched = line.lives.keys() - {*work.reads[here], *work.writes[here], *work.pinned}
        for root in sorted(untouched):
            for life in line.lives[root] if work.bytes[root] else ():
                if life[0] < peak < life[-1]:
                    k = bisect_right(life, peak)
                    relief = work.bytes[root] * (above[life[k] - 1] - above[life[k - 1]])
                    yield _Gap(work.costs[work.maker[root]] / relief, root, life[k - 1], life[k])

    def _again(self, line: Timeline, gap: _Gap, peak: int) -> Iterator[Proposal]:
        """Compute a storage again behind the peak: before its next read, or where least is alive.

        What that reads and is not alive there stays alive for it where the budget has room, and
        else is computed again too; or all of it stays alive.
        """
        work = self.work
        if not work.may_drop(gap.root):
            return
        quiet = int(line.profile[peak + 1 : gap.next + 1].argmin()) + peak + 1
        for at in dict.fromkeys((gap.next, quiet)):
            for stays in (False, True):
                profile = line.profile.copy()
                profile[gap.last + 1 : at] -= work.bytes[gap.root]
                runs = self._chain(line, work.maker[gap.root], at, profile, stays=stays)
                yield Proposal(Edit((), at, runs), sum(work.costs[p] for p in runs), profile)
                if len(runs) == 1:
                    break

    def _chain(
        self, line: Timeline, place: int, at: int, profile: Integers, *, stays: bool
    ) -> tuple[int, ...]:
        """The steps that run so that one can run again; what else they read is held, and counted."""
        work = self.work
        runs: dict[int, None] = {}
        held: set[int] = set()
        waiting = [place]
        while waiting:
            step = waiting.pop()
            if step in runs:
                continue
            runs[step] = None
            for root in work.reads[step]:
                if root in work.pinned or root in held or work.maker[root] in runs:
                    continue
                dies = line.life(root, at)[-1]
                if dies >= at:
                    continue
                fits = profile[dies + 1 : at].max(initial=0) + work.bytes[root] <= self.budget
                if stays or fits or not work.may_drop(root):
                    held.add(root)
                    profile[dies + 1 : at] += work.bytes[root]
                else:
                    waiting.append(work.maker[root])
        return tuple(sorted(runs))

    def _pulled(self, line: Timeline, entry: int, peak: int) -> Iterator[Proposal]:
        """Let an entry run before the peak, with what it needs from behind."""
        group = {entry}
        waiting = [entry]
        while waiting:
            other = waiting.pop()
            for root in self.work.reads[line.places[other]]:
                born = line.life(root, other)[0]
                if born == peak or (born > peak and len(group) == _GROUP):
                    return
                if born > peak and born not in group:
                    group.add(born)
                    waiting.append(born)
        moved = sorted(group)
        between = {line.places[e] for e in range(peak, moved[-1]) if e not in group}
        if self._may_pass(line, moved, between):
            profile = line.profile.copy()
            for other in moved:
                self._move_up(line, other, peak, profile)
            yield Proposal(Edit(tuple(moved), peak, tuple(line.places[e] for e in moved)), 0, profile)

    def _move_up(self, line: Timeline, entry: int, to: int, profile: Integers) -> None:
        """Count what an entry writes from an earlier one on, and what it reads last up to there."""
        work, place = self.work, line.places[entry]
        for root in work.writes[place]:
            profile[to:entry] += work.bytes[root]
        for root in work.reads[place]:
            life = line.life(root, entry)
            if root not in work.pinned and life[-1] == entry:
                profile[max(_before(life, entry) + 1, to) : entry] -= work.bytes[root]

    def _pushed(self, line: Timeline, entry: int, peak: int) -> Iterator[Proposal]:
        """Let an entry run behind the peak, right before the first read of what it writes."""
        work, place = self.work, line.places[entry]
        made = [life for r in work.writes[place] for life in line.lives[r] if life[0] == entry]
        to = min(life[1] for life in made if len(life) > 1)
        between = set(line.places[entry + 1 : to])
        if to <= peak or not self._may_pass(line, [entry], between):
            return
        profile = line.profile.copy()
        for root in work.writes[place]:
            profile[entry : to - 1] -= work.bytes[root]
        for root in work.reads[place]:
            dies = line.life(root, entry)[-1]
            if root not in work.pinned and dies < to:
                profile[dies + 1 : to] += work.bytes[root]
        yield Proposal(Edit((entry,), to, (place,)), 0, profile)

    def _may_pass(self, line: Timeline, moved: Iterable[int], between: set[int]) -> bool:
        none: set[int] = set()
        return all(self.apart.get(line.places[e], none).isdisjoint(between) for e in moved)

    def _erased(self, line: Timeline, entry: int) -> Proposal:
        """Do not run a step again: what it made before stays alive instead."""
        work, place = self.work, line.places[entry]
        profile = line.profile.copy()
        for root in work.writes[place]:
            if root not in work.pinned:
                profile[line.life(root, entry)[-1] + 1 : entry + 1] += work.bytes[root]
        for root in work.reads[place]:
            life = line.life(root, entry)
            if root not in work.pinned and life[-1] == entry:
                profile[_before(life, entry) + 1 : entry + 1] -= work.bytes[root]
        return Proposal(Edit((entry,), entry, ()), -work.costs[place], profile)


def _before(life: Life, entry: int) -> int:
    """The entry that touches an instance before another one does."""
    return life[life.index(entry) - 1]

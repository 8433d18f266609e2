"""Down to a budget by running steps again, and to the least work within it.

At the entry that is most above the budget all storages are scored that lie idle there: what their
step costs for each byte and entry that is relieved.  The best few are tried on the line, which
follows a change at the cost of what it touches.  Where none lowers the excess, the entries above
the budget weigh more and more, so that the search leaves a local minimum through what weighs less.

Source: the growing weights are those of the breakout method for constraint satisfaction (Morris
1993, The Breakout Method for Escaping from Local Minima, AAAI).

This says in Python what native/kernels/walk.c says in C: both walk alike, step by step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np

from gradtool.planning.flow import Integers
from gradtool.planning.ladder.line import Line
from gradtool.planning.ladder.passing import Passing
from gradtool.planning.ladder.reruns import Reruns
from gradtool.planning.ladder.walk import Descent, Walk
from gradtool.planning.search.cost_model import CostModel

Change: TypeAlias = Callable[[], bool]

_SCORED = 32
_VAIN = 48
_EACH = 50  # entries that a trial counts for, and each run that it put in or took out
_CHANGE = 15
_ALIKE = 1.2
_READERS = 4  # of a storage that run before another entry


def repeats(line: Line) -> Iterator[int]:
    """The entries that run a step again, the dearest first, while they do."""
    costs = line.work.costs
    for entry in sorted(line.repeats(), key=lambda e: (-costs[line.place[e]], e)):
        if entry in line.place and not line.is_first(entry):
            yield entry


def could_stay(line: Line, entry: int, budget: int) -> bool:
    """Whether what a repeat makes could have stayed alive."""
    work = line.work
    for r in work.fleeting[line.place[entry]]:
        run = line.run(r, entry)
        if run is None or line.end(r, entry) == entry:
            continue
        if line.most(line.end(r, run), entry) + work.bytes[r] > budget:
            return False
    return True


class PythonWalk(Walk):
    """A walk on a line of Python's own."""

    def __init__(self, work: CostModel) -> None:
        self.work = work
        self.line = Line(work)
        self.left = 0
        self.reruns = Reruns(work)
        self._passing = Passing(work)
        self._is_deep = self._is_better = self._ends = False
        self._weights: Integers | None = None
        self._idle: list[tuple[int, int, int]] = []

    @property
    def peak(self) -> int:
        return self.line.peak

    @property
    def extra(self) -> int:
        return self.line.extra

    @property
    def places(self) -> list[int]:
        return self.line.places

    @property
    def profile(self) -> Integers:
        return self.line.profile

    def load(self, places: Sequence[int]) -> None:
        self.line = Line(self.work, places)

    # --------------------------------------------------------------------- reruns

    def find_idle(self, number: int) -> int:
        self._idle = list(self.reruns.idle(self.line, self.line.entries[number]))
        return len(self._idle)

    def rerun_idle(self, number: int, budget: int) -> None:
        root, _, reader = self._idle[number]
        self.line.begin()
        made = self._again(self.work.maker[root], reader, budget)
        self._pay()
        end = self.line.commit if made else self.line.rollback
        end()

    def leave_out(self, number: int, count: int) -> None:
        for entry in self.line.repeats()[number : number + count]:
            if entry in self.line.place and not self.line.is_first(entry):
                self.line.remove(entry)

    def _pay(self) -> None:
        """Count what was tried since the line was told to begin."""
        self.left -= _EACH + len(self.line.entries) // 32 + _CHANGE * self.line.changes

    def trim(self, budget: int) -> None:
        """Drop repetitions that the budget does not need."""
        line = self.line
        better = True
        while better:
            better = False
            for entry in repeats(line):
                if not could_stay(line, entry, budget):
                    continue
                if self.left <= 0:
                    return
                before = line.extra
                line.begin()
                line.remove(entry)
                self._pay()
                if line.extra < before and line.peak <= budget:
                    line.commit()
                    better = True
                else:
                    line.rollback()

    # -------------------------------------------------------------------- descent

    def fit(self, budget: int, how: Descent = Descent()) -> bool:  # noqa: B008 - frozen
        """See `Walk.fit`; entries above the budget weigh more after each step in vain."""
        self._weights, self._ends = None, how.ends
        vain, patience = 0, how.patience
        while self.line.peak > budget:
            if self.left <= 0 or (how.worth is not None and self.line.extra >= how.worth):
                return False
            self.left -= len(self.line.entries)
            if self._step(budget, how.trials, vain):
                vain = 0
                continue
            if not patience:
                return False
            patience -= 1
            vain += 1
            self._weigh_more(budget)
        return True

    def _weigh_more(self, budget: int) -> None:
        if self._weights is None:
            self._weights = np.ones(len(self.work.reads), dtype=np.int64)
        over = np.flatnonzero(self.line.profile > budget).tolist()
        places = self.line.places
        self._weights[sorted({places[i] for i in over})] += 1

    def _over(self, budget: int) -> Integers:
        """Weighted bytes above the budget, entry by entry."""
        over: Integers = np.maximum(self.line.profile - budget, 0)
        if self._weights is not None:
            over *= self._weights[self.line.places]
        return over

    def _step(self, budget: int, trials: int, vain: int) -> bool:
        """Make the best of the changes that are tried where the excess is worst.

        After some steps in `vain`, as many worse entries are passed over.

        Others that were tried are made too if they still cost hardly more for what they relieve:
        layers that are alike change together.
        """
        helped: list[tuple[tuple[float, int], int, Change]] = []
        line = self.line
        over = self._over(budget)
        excess = int(over.sum())
        ranked = np.argsort(-over, kind="stable")
        worst = line.entries[int(ranked[vain % int(np.count_nonzero(over))])]
        for tried, change in enumerate(self._changes(over, worst, budget, trials)):
            if tried >= (trials if helped else _VAIN):
                break
            price = self._tried(change, budget, excess)
            line.rollback()
            if price is not None:
                helped.append((price, tried, change))
        helped.sort(key=lambda each: each[:2])
        if not helped:
            return False
        most = _ALIKE * max(helped[0][0][0], 0.0)
        for n, ((each, _), _, change) in enumerate(helped):
            if n and (each > most or line.peak <= budget):
                break
            now = self._tried(change, budget, excess)
            if not n or (now is not None and now[0] <= most):
                line.commit()
                excess = int(self._over(budget).sum())
            else:
                line.rollback()
        return True

    def _changes(self, over: Integers, worst: int, budget: int, trials: int) -> Iterator[Change]:
        """What may lower the excess at the worst entry, the cheapest first."""
        line, maker = self.line, self.work.maker
        ranked = self._ranked(over, worst, budget)
        shifts = 0
        for root, last, reader in ranked:
            yield partial(self._again, maker[root], reader, budget)
            if self._is_deep:
                yield partial(self._again, maker[root], reader, None)
            if shifts < trials:
                shifts += 1
                is_made = last == line.run(root, reader)
                yield partial(self._passing.pull, line, reader, worst)
                if not self._is_better:
                    yield partial(self._ahead, reader, worst, budget)
                    if self._ends and not is_made:
                        yield partial(self._end, root, last, budget)
                if is_made:
                    yield partial(self._passing.push, line, last, reader)

    def _again(self, p: int, reader: int, room: int | None) -> bool:
        line = self.line
        return reader in line.place and self.reruns.again(line, p, reader, room)

    def _ahead(self, reader: int, before: int, room: int) -> bool:
        """Let a reader run before an entry, with what it reads computed again where it is gone."""
        line = self.line
        if reader not in line.place or before not in line.place or reader < before:
            return False
        p = line.place[reader]
        if any(line.run(r, before) is None for r in self.work.reads[p]):
            return False
        passed = line.entries[line.at(before) : line.at(reader)]
        if not self._passing.may_pass(line, (reader,), passed):
            return False
        if not self.reruns.again(line, p, before, room):
            return False
        if reader in line.place:
            line.remove(reader)
        return True

    def _end(self, root: int, last: int, room: int) -> bool:
        """Let all that reads an instance of a storage after an entry run before that."""
        line = self.line
        for _ in range(_READERS):
            runs, uses = line.runs[self.work.maker[root]], line.uses[root]
            i, j = bisect_right(runs, last), bisect_right(uses, last)
            if j == len(uses) or (i < len(runs) and runs[i] <= uses[j]):
                return True
            if not self._ahead(uses[j], last, room):
                return False
        return False

    def _tried(self, change: Change, budget: int, excess: int) -> tuple[float, int] | None:
        """The price of a change, which is made; None if it does not lower the excess."""
        line = self.line
        extra = line.extra
        line.begin()
        made = change()
        self._pay()
        self._is_deep = line.changes > 1
        gain, cost = excess - int(self._over(budget).sum()), line.extra - extra
        self._is_better = made and gain > 0
        if not self._is_better:
            return None
        return (cost / gain if cost > 0 else float(cost) * gain), -gain

    def _ranked(self, over: Integers, worst: int, budget: int) -> Iterator[tuple[int, int, int]]:
        """Storages idle at the worst entry, their last and next touches, the cheapest first.

        What a rerun costs is found out for those that seem cheapest, one after the other.
        """
        line, work = self.line, self.work
        above = np.concatenate([[0], np.cumsum(over > 0)]).tolist()
        seeming = []
        for root, last, reader in self.reruns.idle(line, worst):
            relief = above[line.at(reader)] - above[bisect_right(line.entries, last)]
            relieved = max(relief * work.bytes[root], 1)
            cost = self.reruns.near(line, work.maker[root], reader)
            seeming.append((cost / relieved, last, root, reader, relieved))
        seeming.sort(reverse=True)
        known: list[tuple[float, int, int, int]] = []
        for _ in range(min(_SCORED, len(seeming))):
            while seeming and not (known and known[0][0] <= seeming[-1][0]):
                _, last, root, reader, relieved = seeming.pop()
                cost = self.reruns.cost(line, work.maker[root], reader, budget)
                heappush(known, (cost / relieved, last, root, reader))
            _, last, root, reader = heappop(known)
            yield root, last, reader

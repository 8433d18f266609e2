"""A range of positions in a schedule, and what the rest of the schedule asks of its contents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from gradtool.overwriting import write_after_read
from gradtool.planning.schedule import instances
from gradtool.planning.simulate import Simulator

_TWICE = 2


@dataclass(frozen=True)
class Window:
    """What runs in a range of positions, what comes into it and what has to leave it.

    `steps` run there now, from position `begin` on; `runs` says how often each step that could run there may, and `first`
    names those that do not run before.  Of the storages that come in, those in `settled` are there
    from begin to end whatever the window does, `entering` ones for as long as it wants (now up to the
    position given with each); `owed` ones have to be there at its end.  `room` are the bytes left beside the settled, of which the steps
    there now take `peak`.  `before` are pairs of steps that keep their order.
    """

    begin: int
    frozen: frozenset
    steps: tuple[int, ...]
    runs: dict[int, int]
    first: frozenset[int]
    settled: frozenset[int]
    entering: dict[int, int]
    owed: tuple[int, ...]
    room: int
    peak: int
    before: tuple[tuple[int, int], ...]


class Surroundings:
    """A schedule in which windows are opened; steps without a cost in `costs` run once."""

    def __init__(
        self, simulator: Simulator, order: Sequence[int], costs: Sequence[int | None]
    ) -> None:
        self.simulator, self.order, self.costs = simulator, tuple(order), costs
        self.steps = simulator.program.steps
        self.maker = {r: s for s, writes in enumerate(simulator.writes) for r in writes}
        self.first = {s: p for p, s in reversed(list(enumerate(order)))}
        self.final = {s: p for p, s in enumerate(order)}
        self.profile = simulator.profile(order)
        self.last: dict[tuple[int, int], int] = {}
        for position, reads in enumerate(instances(simulator.program, order)[0]):
            for root, born in reads.items():
                self.last[root, born] = position
        once = [s for s, step in enumerate(self.steps) if not step.recomputable]
        overwritten = list(write_after_read(simulator.program))
        self.ordered = [*pairwise(once), *overwritten]
        self.spoiled = {reader for reader, _ in overwritten}

    def window(self, begin: int, end: int, budget: int, more: int, free=None) -> Window:
        """The window from one position up to and without another.

        Up to `more` steps that do not run there now may run there again.
        """
        simulator, pinned = self.simulator, self.simulator.pinned
        steps = self.order[begin:end]
        first = frozenset(s for s in steps if self.first[s] >= begin)
        standing = [r for r in sorted(pinned) if self.first[self.maker[r]] < begin]
        coming = {r: last for (r, born), last in self.last.items() if born < begin <= last}
        leaving = [r for (r, born), last in self.last.items() if born < end <= last]
        inside = {r: last for r, last in coming.items() if r not in pinned}
        owed = [r for r in leaving if r not in pinned]
        again = self._again(steps, {*standing, *inside}, owed, begin, more)
        entering = {self.maker[r] for r in inside}
        runs = {
            s: self._most(s, count, comes_in=s in entering) for s, count in Counter(steps).items()
        }
        if free is not None:
            runs = {s: (c if s in free else steps.count(s)) for s, c in runs.items()}
            again = [s for s in again if s in free]
        runs |= dict.fromkeys(again, 1)
        through = {r for r in inside.keys() & set(owed) if self.maker[r] not in runs}
        settled = frozenset({*standing, *through})
        beside = simulator.fixed + sum(simulator.bytes[r] for r in settled)
        return Window(
            begin=begin,
            frozen=frozenset() if free is None else frozenset(steps) - frozenset(free),
            steps=steps,
            runs=runs,
            first=first,
            settled=settled,
            entering={r: last for r, last in inside.items() if r not in settled},
            owed=tuple(r for r in owed if r not in settled),
            room=budget - beside,
            peak=max(self.profile[begin:end]) - beside,
            before=tuple(self._pairs(runs)),
        )

    def _most(self, step: int, count: int, *, comes_in: bool) -> int:
        """How often a step may run in a window where it runs `count` times now."""
        if not self.may_repeat(step):
            return count
        return max(count, 1 if comes_in else _TWICE)

    def may_repeat(self, step: int) -> bool:
        """Whether a step may run more than once."""
        return self.steps[step].recomputable and self.costs[step] is not None

    def _pairs(self, runs: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """Steps that run once keep their order, and what reads a parameter its place before."""
        for one, other in self.ordered:
            if one in runs and other in runs and self.final[one] < self.first[other]:
                yield one, other

    def _again(
        self, steps: Sequence[int], there: set[int], owed: Sequence[int], begin: int, most: int
    ) -> list[int]:
        """Steps that may run in the window though they do not now, those of most use first.

        What they make is read there or owed, or serves others of them; what they read is there.
        """
        present = set(steps)
        possible = self._possible(present, there, begin)
        found: dict[int, None] = {}
        wanted = dict.fromkeys([*(r for s in steps for r in self.simulator.reads[s]), *owed])
        while wanted and len(found) < most:
            makers = dict.fromkeys(self.maker[r] for r in wanted)
            new = [s for s in makers if s in possible and s not in found and s not in present]
            new.sort(key=self._cost_per_byte)
            found |= dict.fromkeys(new)
            wanted = dict.fromkeys(r for s in new for r in self.simulator.reads[s])
        return list(found)[:most]

    def _possible(self, present: set[int], there: set[int], begin: int) -> set[int]:
        """Steps that ran before a position and could run again from what is there or made there."""
        made, found = set(there), set()
        for step, reads in enumerate(self.simulator.reads):
            again = self.may_repeat(step) and self.first.get(step, begin) < begin
            if step in present or (again and step not in self.spoiled and made.issuperset(reads)):
                found.add(step)
                made.update(self.simulator.writes[step])
        return found

    def _cost_per_byte(self, step: int) -> tuple[Fraction, int]:
        size = sum(self.simulator.bytes[r] for r in self.simulator.writes[step])
        return Fraction(self.costs[step] or 0, max(size, 1)), step

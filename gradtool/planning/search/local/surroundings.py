"""A schedule in which windows are opened: what comes into them, what leaves, what may run there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

from gradtool.planning.search.local.window import Window
from gradtool.planning.simulate import Simulator
from gradtool.program.overwriting import write_after_read

_TWICE = 2


class Surroundings:
    """A schedule in which windows are opened; steps without a cost in `costs` run once."""

    def __init__(
        self, simulator: Simulator, order: Sequence[int], costs: Sequence[int | None]
    ) -> None:
        self.simulator, self.order, self.costs = simulator, tuple(order), costs
        self.steps = simulator.program.steps
        self.maker = {r: s for s, writes in enumerate(simulator.writes) for r in writes}
        self.begins = {s: p for p, s in reversed(list(enumerate(order)))}
        self.ends = {s: p for p, s in enumerate(order)}
        self.profile = simulator.profile(order)
        self.last: dict[tuple[int, int], int] = {}
        latest: dict[int, int] = {}
        for position, step in enumerate(order):
            for root in simulator.reads[step]:
                self.last[root, latest[root]] = position
            for root in simulator.writes[step]:
                if root not in simulator.live_out or root not in latest:
                    latest[root] = position
        once = [s for s, step in enumerate(self.steps) if not step.recomputable]
        overwritten = list(write_after_read(simulator.program))
        self.ordered = [*pairwise(once), *overwritten]
        self.spoiled = {reader for reader, _ in overwritten}

    def window(self, begin: int, end: int, budget: int, free: Collection[int], more: int) -> Window:
        """The window from one position up to and without another, in which some steps move.

        Up to `more` steps that do not run there now may run there again, for the sake of others.
        """
        simulator, live_out = self.simulator, self.simulator.live_out
        steps = self.order[begin:end]
        standing = {r for r in live_out if self.begins[self.maker[r]] < begin}
        coming = self._crossing(begin)
        owed = tuple(self._crossing(end))
        runs = self._runs(steps, free, {self.maker[r] for r in coming})
        wanted = [*(r for s in steps if s in free for r in simulator.reads[s]), *owed]
        again = self._again(runs, wanted, standing | set(coming), begin, more)
        runs |= dict.fromkeys(again, 1)
        through = {r for r in coming if r in owed and self.maker[r] not in runs}
        settled = frozenset(standing | through)
        beside = simulator.fixed + sum(simulator.bytes[r] for r in settled)
        return Window(
            begin=begin,
            steps=steps,
            runs=runs,
            first=frozenset(s for s in runs if self.begins[s] >= begin),
            frozen=frozenset(steps).difference(free),
            settled=settled,
            entering={r: last for r, last in coming.items() if r not in settled},
            owed=tuple(r for r in owed if r not in settled),
            room=budget - beside,
            peak=max(self.profile[begin:end]) - beside,
            before=tuple(self._kept(runs)),
        )

    def may_repeat(self, step: int) -> bool:
        """Whether a step may run more than once."""
        return self.steps[step].recomputable and self.costs[step] is not None

    def _crossing(self, position: int) -> dict[int, int]:
        """The storages from before a position that are read later, and where last; no results."""
        live_out = self.simulator.live_out
        residuals = ((r, last) for (r, born), last in self.last.items() if born < position <= last)
        return {r: last for r, last in residuals if r not in live_out}

    def _runs(
        self, steps: Sequence[int], free: Collection[int], coming: Collection[int]
    ) -> dict[int, int]:
        """How often each step of a window may run: twice, with what came in from before."""
        runs = dict(Counter(steps))
        for step, count in runs.items():
            if step in free and self.may_repeat(step):
                runs[step] = max(count, 1 if step in coming else _TWICE)
        return runs

    def _kept(self, runs: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """Steps that run once keep their order, and what reads a parameter its place before."""
        for one, other in self.ordered:
            if one in runs and other in runs and self.ends[one] < self.begins[other]:
                yield one, other

    def _again(
        self,
        present: Mapping[int, int],
        wanted: Sequence[int],
        there: Collection[int],
        begin: int,
        most: int,
    ) -> list[int]:
        """Steps that may run in a window though they do not now, those of most use first.

        They make what is wanted, or serve others of them; what they read is there.
        """
        possible = self._possible(present, there, begin) if most else set()
        found: dict[int, None] = {}
        while wanted and len(found) < most:
            makers = dict.fromkeys(self.maker[r] for r in wanted)
            new = sorted((s for s in makers if s in possible and s not in found), key=self._price)
            found |= dict.fromkeys(new)
            wanted = [r for s in new for r in self.simulator.reads[s]]
        return list(found)[:most]

    def _possible(self, present: Mapping[int, int], there: Collection[int], begin: int) -> set[int]:
        """Steps that ran before a position and could run again from what is there or made there."""
        made, found = set(there), set()
        for step, reads in enumerate(self.simulator.reads):
            again = self.begins[step] < begin and self.may_repeat(step) and step not in self.spoiled
            if step in present:
                made.update(self.simulator.writes[step])
            elif again and made.issuperset(reads):
                found.add(step)
                made.update(self.simulator.writes[step])
        return found

    def _price(self, step: int) -> tuple[Fraction, int]:
        """What a byte of a step's outputs costs."""
        size = sum(self.simulator.bytes[r] for r in self.simulator.writes[step])
        return Fraction(self.costs[step] or 0, max(size, 1)), step

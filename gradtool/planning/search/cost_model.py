"""A program whose steps may run again: what that costs, and the schedules that it allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

from gradtool.planning.schedule import Schedule
from gradtool.planning.simulate import Simulator
from gradtool.program import Program

Drops: TypeAlias = Mapping[int, frozenset[int]]


class Weighed(NamedTuple):
    """A schedule with repeats, in places of the base order.

    `places` are the steps in running order, `during` says of each at which place of the base order
    it runs, `extra` is the cost of the repeats and `profile` the bytes alive, entry by entry.
    """

    places: list[int]
    during: list[int]
    extra: int
    profile: list[int]

    @property
    def peak(self) -> int:
        """The most bytes alive at once."""
        return max(self.profile, default=0)


class CostModel:
    """A program, the order in which its steps first run, and the cost of running them again.

    Everything is numbered by place in that base order; storages keep the numbers that the
    simulator gives them.  `costs` are the steps' FLOPs if nothing else is given; a step of unknown
    cost never runs again, as nobody could say what that takes, nor does one that draws at random.
    """

    def __init__(
        self,
        program: Program,
        costs: Sequence[int | None] | None = None,
        order: Sequence[int] | None = None,
    ) -> None:
        self.program = program
        self.simulator = simulator = Simulator(program)
        self.order = tuple(range(len(program.steps)) if order is None else order)
        priced = [s.flops for s in program.steps] if costs is None else list(costs)
        self.costs = [priced[s] or 0 for s in self.order]
        self.reads = [simulator.reads[s] for s in self.order]
        self.writes = [simulator.writes[s] for s in self.order]
        self.maker = {r: p for p, writes in enumerate(self.writes) for r in writes}
        self.bytes = simulator.bytes
        self.live_out = simulator.live_out
        self.repeatable = [
            program.steps[s].recomputable and priced[s] is not None for s in self.order
        ]
        self._count_storages()
        self.total = sum(self.costs)

    def _count_storages(self) -> None:
        """What weighing asks of a step: outputs that pass, bytes that stay or are never read.

        Of the outputs that pass, those that somebody reads are `fleeting`.
        """
        simulator, live_out = self.simulator, self.live_out
        self._ends = frozenset(live_out)
        self._end_bytes = simulator.fixed + sum(self.bytes[r] for r in live_out)
        self.donates = [simulator.donates[s] for s in self.order]
        self.targets = [simulator.targets[s] for s in self.order]
        self._passing: list[tuple[int, ...]] = []
        self.fleeting: list[tuple[int, ...]] = []
        self.staying: list[int] = []
        self.beside: list[int] = []
        self.is_result: list[bool] = []
        for step, writes in zip(self.order, self.writes, strict=True):
            staying = [r for r in writes if r in live_out]
            unread = [r for r in writes if r not in live_out and r not in simulator.read]
            self._passing.append(tuple(r for r in writes if r not in live_out))
            self.fleeting.append(tuple(r for r in self._passing[-1] if r in simulator.read))
            self.staying.append(sum(self.bytes[r] for r in staying))
            self.beside.append(simulator.work[step] + sum(self.bytes[r] for r in unread))
            self.is_result.append(bool(staying) or simulator.read.isdisjoint(writes))

    @cached_property
    def peak_place(self) -> int:
        """The place at which most bytes are alive when nothing runs again."""
        profile = self.simulator.profile(self.order)
        return profile.index(max(profile)) if profile else 0

    def runs(self, places: Sequence[int]) -> bool:
        """Whether a schedule has all that each step reads, and repeats only what it may."""
        there: set[int] = set()
        ran: set[int] = set()
        for place in places:
            if not there.issuperset(self.reads[place]):
                return False
            if place in ran and not self.repeatable[place]:
                return False
            ran.add(place)
            there.update(self.writes[place])
        return len(ran) == len(self.reads)

    def may_drop(self, root: int) -> bool:
        """Whether a storage can be had again after it was let go."""
        return root not in self.live_out and self.repeatable[self.maker[root]]

    def weigh(self, drops: Drops) -> Weighed:
        """The schedule that lets `drops[p]` go after place p and recomputes what is missing, once.

        What a step reads and is not there runs again right before it, in base order, with whatever
        that needs; it then stays until it is dropped again.  The simulator frees every instance
        after its last read, so a drop says only that later reads have to be served anew.  What is
        dropped before anybody read it has not run at all: its step comes later instead.  Bytes are
        those of `Simulator.profile`, counted from the end so that what nobody reads is known.
        """
        places, during = self._unrolled(drops)
        kept, profile = self.alive(places, [d == p for d, p in zip(during, places, strict=True)])
        places, during = [places[e] for e in kept], [during[e] for e in kept]
        return Weighed(places, during, self.work_again(places), profile)

    def work_again(self, places: Sequence[int]) -> int:
        """The cost of what runs again."""
        return sum(self.costs[p] for p in places) - self.total

    def alive(self, places: Sequence[int], firsts: Sequence[bool]) -> tuple[list[int], list[int]]:
        """The entries of a schedule that give a result or are read, and the bytes alive at each.

        `places` are the steps in running order, `firsts` says which of them run for the first time.
        """
        profile: list[int] = []
        kept: list[int] = []
        unread = set(self._ends)
        live = self._end_bytes
        for entry in range(len(places) - 1, -1, -1):
            place = places[entry]
            wanted = [r for r in self._passing[place] if r in unread]
            first = firsts[entry] and self.is_result[place]
            if not wanted and not first:
                continue
            here = live + self.beside[place]
            if self.donates[place]:
                here -= self._in_place(place, unread, wanted, first=first)
            unread.difference_update(self.writes[place] if first else wanted)
            for root in wanted:
                live -= self.bytes[root]
            if first:
                live -= self.staying[place]
            for root in self.reads[place]:
                if root not in unread:
                    unread.add(root)
                    here += self.bytes[root]
                    live += self.bytes[root]
            kept.append(entry)
            profile.append(here)
        return kept[::-1], profile[::-1]

    def _in_place(self, place: int, unread: set[int], wanted: list[int], *, first: bool) -> int:
        """Bytes that the first output of a step saves by lying where an input ends."""
        target = self.targets[place]
        made = first or target in wanted or target not in self.simulator.read
        return self.bytes[target] if made and not unread.issuperset(self.donates[place]) else 0

    def _unrolled(self, drops: Drops) -> tuple[list[int], list[int]]:
        """Places in running order, and the place during which each runs."""
        available: set[int] = set()
        places: list[int] = []
        during: list[int] = []
        for place, reads in enumerate(self.reads):
            if not available.issuperset(reads):
                again = self._missing(reads, available)
                places += again
                during += [place] * len(again)
                for step in again:
                    available.update(self.writes[step])
            places.append(place)
            during.append(place)
            available.update(self.writes[place])
            if place in drops:
                available.difference_update(drops[place])
        return places, during

    def _missing(self, reads: Sequence[int], available: set[int]) -> list[int]:
        """The steps that have to run again so that `reads` are there, in base order."""
        again: set[int] = set()
        stack = [r for r in reads if r not in available]
        while stack:
            step = self.maker[stack.pop()]
            if step not in again:
                again.add(step)
                stack += [r for r in self.reads[step] if r not in available]
        return sorted(again)

    def schedule(self, places: Sequence[int]) -> Schedule:
        """The steps at some places, in that order, with the names of their instances."""
        return Schedule.of(self.order[p] for p in places)

"""A program with recomputable steps: their costs, and the valid schedules."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from gradtool.planning.schedule import Schedule
from gradtool.planning.simulate import Simulator
from gradtool.program import Program


class CostModel:
    """A program, its base order, and the cost of running steps again.

    Everything is numbered by place in that base order; storages keep the numbers that the simulator
    gives them.  `costs` are the steps' FLOPs if nothing else is given; a step of unknown cost never
    runs again, as its work cannot be counted, nor does one that draws at random.
    """

    def __init__(
        self,
        program: Program,
        costs: Sequence[int | None] | None = None,
        order: Sequence[int] | None = None,
    ) -> None:
        self.program = program
        self.simulator = simulator = Simulator.of(program)
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
        self.instants: dict[tuple[int, int], Any] = {}  # see `work_bound.instants`

    def _count_storages(self) -> None:
        """The facts for weighing a step: outputs that pass, bytes that stay or are never read.

        Of the outputs that pass, those that somebody reads are `fleeting`.
        """
        simulator, live_out = self.simulator, self.live_out
        self.donates = [simulator.donates[s] for s in self.order]
        self.targets = [simulator.targets[s] for s in self.order]
        self.fleeting: list[tuple[int, ...]] = []
        self.staying: list[int] = []
        self.beside: list[int] = []
        self.is_result: list[bool] = []
        for step, writes in zip(self.order, self.writes, strict=True):
            staying = [r for r in writes if r in live_out]
            unread = [r for r in writes if r not in live_out and r not in simulator.read]
            passing = (r for r in writes if r not in live_out)
            self.fleeting.append(tuple(r for r in passing if r in simulator.read))
            self.staying.append(sum(self.bytes[r] for r in staying))
            self.beside.append(simulator.work[step] + sum(self.bytes[r] for r in unread))
            self.is_result.append(bool(staying) or simulator.read.isdisjoint(writes))

    @cached_property
    def makers(self) -> list[list[int]]:
        """By place, the producers of its step's reads."""
        return [[self.maker[r] for r in reads] for reads in self.reads]

    @cached_property
    def readers(self) -> list[list[int]]:
        """By place, the readers of its step's writes."""
        readers: list[list[int]] = [[] for _ in self.reads]
        for place, reads in enumerate(self.reads):
            for root in dict.fromkeys(reads):
                readers[self.maker[root]].append(place)
        return readers

    @cached_property
    def links(self) -> list[int]:
        """By place, the links a line keeps of a run: itself, its reads, its readers."""
        return [1 + len(r) + len(f) for r, f in zip(self.reads, self.fleeting, strict=True)]

    @cached_property
    def peak_place(self) -> int:
        """The place of the peak without recompute."""
        profile = self.simulator.profile(self.order)
        return profile.index(max(profile)) if profile else 0

    def runs(self, places: Sequence[int]) -> bool:
        """Whether a schedule has all reads of each step, and repeats only repeatable ones."""
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

    def large(self, ignored: int) -> dict[int, None]:
        """The storages that are read or stay, without the smallest."""
        asked = [r for r in self.maker if r in self.simulator.read or r in self.live_out]
        small: set[int] = set()
        for r in sorted(asked, key=lambda r: (self.bytes[r], r)):
            ignored -= self.bytes[r]
            if ignored < 0:
                break
            small.add(r)
        return {r: None for r in asked if r not in small}

    def work_again(self, places: Sequence[int]) -> int:
        """The cost of the recomputed steps."""
        return sum(self.costs[p] for p in places) - self.total

    def schedule(self, places: Sequence[int]) -> Schedule:
        """The steps at some places, in the given order, with the names of their instances."""
        return Schedule.of(self.order[p] for p in places)

"""Runs of the steps of a window: whether there are any, and in which slots."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from gradtool.planning.search.local.hinted import Hinted
from gradtool.planning.search.local.surroundings import Surroundings
from gradtool.planning.search.local.window import Window

SPREAD = 2  # slots for each step that runs now: room for another one before it


class Run(NamedTuple):
    """A run of a step: whether there is one, its slot, and that which it has now if it runs."""

    there: Any
    slot: Any
    now: int | None


class Runs:
    """The runs of every step that may run in a window, `of` a step in order; one for each slot."""

    def __init__(self, hinted: Hinted, around: Surroundings, window: Window) -> None:
        self.hinted, self.around, self.window = hinted, around, window
        self.of = {step: list(self._possible(step, count)) for step, count in window.runs.items()}
        self._one_at_a_time()

    def slot(self, position: int) -> int:
        """The slot of what runs at a position now; the last one for what runs after the window."""
        return min(SPREAD * (position - self.window.begin) + 1, self.hinted.slots - 1)

    def at(self, run: Run) -> Any:
        """The slot of a run as an interval, which is there if the run is."""
        model = self.hinted.model
        return model.new_optional_fixed_size_interval_var(run.slot, 1, run.there, "")

    def work(self) -> Any:
        """What all runs cost, in the largest unit that divides every cost."""
        costs = {step: self.around.costs[step] or 0 for step in self.of}
        unit = math.gcd(*costs.values()) or 1
        return sum(costs[s] // unit * run.there for s, runs in self.of.items() for run in runs)

    def chosen(self) -> tuple[int, ...]:
        """The steps that run in the solution, in order."""
        value = self.hinted.value
        runs = ((step, run) for step, runs in self.of.items() for run in runs if value(run.there))
        return tuple(step for _, step in sorted((value(run.slot), step) for step, run in runs))

    def _possible(self, step: int, count: int) -> Iterator[Run]:
        """The runs of a step; those of a frozen one stay where they are."""
        frozen, hinted = step in self.window.frozen, self.hinted
        now = [self.slot(p) for p in self.window.positions(step)]
        for k in range(count):
            present = now[k] if k < len(now) else None
            due = k == 0 and self._is_due(step)
            must = frozen or due or not self.around.may_repeat(step)
            there = hinted.constant(1) if must else hinted.literal(now=present is not None)
            move = hinted.number(0, hinted.slots - 1, present or 0) if not frozen else None
            yield Run(there, hinted.constant(now[k]) if move is None else move, present)

    def _is_due(self, step: int) -> bool:
        """Whether a step has a result and has not run before."""
        simulator = self.around.simulator
        writes = simulator.writes[step]
        is_result = not simulator.live_out.isdisjoint(writes)
        return step in self.window.first and (is_result or simulator.read.isdisjoint(writes))

    def _one_at_a_time(self) -> None:
        """Slots are taken once, the runs of a step in order; some steps keep their order."""
        model = self.hinted.model
        for runs in self.of.values():
            for one, other in pairwise(runs):
                model.add_implication(other.there, one.there)
                model.add(one.slot < other.slot).only_enforce_if(other.there)
        for before, after in self.window.before:
            for run in self.of[before]:
                model.add(run.slot < self.of[after][0].slot).only_enforce_if(run.there)
        model.add_no_overlap(self.at(run) for runs in self.of.values() for run in runs)

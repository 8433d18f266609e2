"""Precedence implied by a memory limit beyond that of the graph.

If a step u may run before v only when more than the limit is alive while v runs, u runs after v.
Each pair found makes other steps need more, and so on; if a step then needs more than the limit, no
order fits it: bound d of docs/bounds.md.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gradtool.planning.flow import Integers, Mask
from gradtool.planning.orders.bounds import FREE, RUN, WAITS, least_around, sides_of
from gradtool.planning.orders.graph import StepGraph

_ROUNDS = 4


class Implied:
    """A step graph with the precedence implied by a limit (bytes), by at most so many cuts.

    `graph` holds the pairs found so far; `refuted` says that no order fits.
    """

    def __init__(self, graph: StepGraph, limit: int, cuts: int) -> None:
        self.graph, self.limit, self.left = graph, limit, cuts
        self.refuted = False
        self._runs: dict[int, list[Mask]] = {}

    def ask(self, steps: Iterable[int]) -> None:
        """Find the precedence implied by the least needs of some steps, to a fixed point."""
        steps = list(steps)
        for _ in range(_ROUNDS):
            before = self.graph
            for step in steps:
                self._ask(step)
                if self.refuted or self.left <= 0:
                    return
            if self.graph is before:
                return

    def _ask(self, step: int) -> None:
        """Find the steps that must run before a step, and after it, within the limit."""
        sides = sides_of(self.graph, step)
        runs = [run for run in self._runs.get(step, []) if self._is_closed(run)]
        if not runs:
            first = self._fits(sides, step)
            if first is None:
                self.refuted = self.left >= 0
                return
            runs.append(first)
        self._runs[step] = runs
        earlier, later = np.logical_or.reduce(runs), np.logical_or.reduce([~run for run in runs])
        pairs: list[tuple[int, int]] = []
        for other in np.flatnonzero(sides == FREE).tolist():
            for side, possible in ((RUN, earlier), (WAITS, later)):
                if sides[other] != FREE or possible[other]:
                    continue
                tried = sides.copy()
                tried[self.graph.reach(other, backward=side == RUN)] = side
                run = self._fits(tried, step)
                if self.left < 0:
                    break
                if run is None:
                    before = side == WAITS
                    sides[self.graph.reach(other, backward=before)] = RUN if before else WAITS
                    pairs.append((other, step) if before else (step, other))
                else:
                    runs.append(run)
                    earlier, later = earlier | run, later | ~run
        if pairs:
            self.graph = self.graph.ordered(pairs)

    def _fits(self, sides: Integers, step: int) -> Mask | None:
        """A set of steps to run before a step within the limit; None if none or no cut left.

        A step that may write over an input is taken to do so.
        """
        self.left -= 1
        if self.left < 0:
            return None
        alone = self.graph.fixed + self.graph.held[step] - self.graph.gain[step]
        cut, run = least_around(self.graph, sides, step)
        return run if alone + cut <= self.limit else None

    def _is_closed(self, run: Mask) -> bool:
        """Whether a set of steps is closed under precedence."""
        earlier, later = self.graph.edges
        return bool((run[earlier] >= run[later]).all())

"""The order of steps that needs least memory when nothing is computed twice, with its certificate.

List orders and the orders that the cuts of bound b give come first.  Between the bound and the best
of these, limits are tried by halving: a limit is either refuted, which raises the bound, or searched
for an order that fits.  All of this is counted work: the result depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from gradtool.planning.bounds import least_during, order_bound
from gradtool.planning.flow import Integers, Mask
from gradtool.planning.order_implied import Implied
from gradtool.planning.order_moves import Moves, depth_first, greedy
from gradtool.planning.order_search import from_start, outwards
from gradtool.planning.simulate import Simulator
from gradtool.planning.step_graph import StepGraph
from gradtool.program import Program

_WORK = 1_000_000
_LIMITS = 8
_STARTS = 8
_ASKED = 32


@dataclass(frozen=True)
class Ordered:
    """An order of all steps, its peak, and the bytes below which no order comes.

    `how` names what found it: `given`, a list order, `cut` or `search`.
    """

    order: tuple[int, ...]
    peak: int
    bound: int
    how: str

    @property
    def proven(self) -> bool:
        """Whether no order needs less."""
        return self.peak == self.bound


def best_order(program: Program, *, effort: int = 1) -> Ordered:
    """The best order found, the given one if none is better.

    `effort` multiplies the work: the number of cuts and of states searched.
    """
    return _Orders(program, effort).found()


class _Orders:
    """The best order and the bound, as they come closer."""

    def __init__(self, program: Program, effort: int) -> None:
        self.graph = StepGraph(program)
        self.simulator = Simulator(program)
        self.cuts = max(8, effort * _WORK // 4 // max(self.graph.count, 1))
        self.states = max(100, effort * 4 * _WORK // max(self.graph.count, 1))
        self.limits = _LIMITS * effort
        given = tuple(range(self.graph.count))
        self.best = Ordered(given, self.simulator.peak(given), 0, "given")
        self.tried = [np.arange(self.graph.count)]

    def found(self) -> Ordered:
        """Lists, cuts, then search: each only as long as the bound is not met."""
        bounded = order_bound(self.graph, self.tried, cuts=self.cuts)
        self._raise(bounded.bytes)
        if not self.best.proven:
            for order in bounded.orders:
                self._offer(order, "cut")
            for how, order in self._lists():
                self._offer(order, how)
        if not self.best.proven:
            self._search(bounded.needs)
        return self.best

    def _lists(self) -> Iterator[tuple[str, Integers]]:
        """Orders made step by step: least alive next from the start and the end, depth first."""
        for backward in (False, True):
            moves = Moves(self.graph, backward=backward)
            for newest in (False, True):
                name = f"greedy from the {'end' if backward else 'start'}"
                yield name, np.array(greedy(moves, newest=newest), dtype=np.int64)
        yield "depth first", np.array(depth_first(self.graph), dtype=np.int64)

    def _search(self, needs: Integers) -> None:
        """Try limits between the bound and the best order."""
        asked = np.argsort(-needs, kind="stable")[:_ASKED].tolist()
        limit = least = self.best.bound
        for _ in range(self.limits):
            if not self._try(limit, asked):
                least = limit + 1
            least = max(least, self.best.bound)
            if least >= self.best.peak:
                break
            limit = (least + self.best.peak - 1) // 2
        while self.limits > 0 and self.best.bound < least:
            self.limits -= 1
            limit = (self.best.bound + least - 1) // 2
            if self._refute(limit, asked).refuted:
                self._raise(limit + 1)
            else:
                least = limit

    def _try(self, limit: int, asked: list[int]) -> bool:
        """Whether an order within the limit was found; the bound is above it if none can be."""
        implied = self._refute(limit, asked)
        if implied.refuted:
            self._raise(limit + 1)
            return False
        for run in self._starts(implied.graph, asked):
            order = outwards(implied.graph, run, limit, self.states)
            if order is not None:
                self._offer(np.array(order), "search")
                return True
        found = from_start(implied.graph, limit, self.states)
        if found.path is not None:
            self._offer(np.array(found.path), "search")
        elif found.exhausted:
            self._raise(limit + 1)
        return found.path is not None

    def _starts(self, graph: StepGraph, asked: list[int]) -> list[Mask]:
        """The states in which the steps that need most run with least, each once."""
        runs = (least_during(graph, step)[1] for step in asked)
        return list({run.tobytes(): run for run in runs}.values())[:_STARTS]

    def _refute(self, limit: int, asked: list[int]) -> Implied:
        implied = Implied(self.graph, limit, self.cuts)
        implied.ask(asked)
        return implied

    def _raise(self, bound: int) -> None:
        self.best = replace(self.best, bound=max(bound, self.best.bound))

    def _offer(self, order: Integers, how: str) -> None:
        if self.graph.peak(order) < self.best.peak:
            steps = tuple(order.tolist())
            self.best = Ordered(steps, self.simulator.peak(steps), self.best.bound, how)

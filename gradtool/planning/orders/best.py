"""The order of steps of least peak without recompute, with its certificate.

List orders and those that the cuts of bound b give come first.  Between the bound and the best
of these, limits are tried by halving: a limit is refuted, which raises the bound, or searched for
an order that fits, for as long as a four-hundredth of the peak could be gained.  All of this is
counted work: the result depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from gradtool.planning.flow import Integers, Mask
from gradtool.planning.orders.bounds import least_during, order_bound
from gradtool.planning.orders.graph import StepGraph
from gradtool.planning.orders.moves import Moves, depth_first, greedy
from gradtool.planning.orders.precedence_closure import Implied
from gradtool.planning.orders.search import from_start, outwards
from gradtool.planning.simulate import Simulator
from gradtool.program import Program

# The work of effort 1 per limit, on programs of up to so many steps: on larger ones a cut
# takes longer in proportion, a state in proportion to the square.
_STEPS = 500
_CUTS = 150
_STATES = 3_750
_STATES_PER_STEP = 6  # of few steps
_FEWEST = 8
_CLOSE = 400  # the part of a peak not worth a search
_LIMITS = 10
_ASKED = 32
_STARTS = 8


@dataclass(frozen=True)
class Ordered:
    """An order of all steps, its peak, and a lower bound of the peak of every order.

    `how` names its origin: `given`, a list order, `cut` or `search`.
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
    """The best order and the bound, as they come closer, and the work to spend on a limit."""

    def __init__(self, program: Program, effort: int) -> None:
        self.graph = StepGraph(program)
        self.simulator = Simulator.of(program)
        scale = max(1, self.graph.count / _STEPS)
        self.cuts = int(effort * _CUTS / scale)
        most = min(_STATES, _STATES_PER_STEP * self.graph.count)
        self.states = int(effort * most / scale**2)
        given = tuple(range(self.graph.count))
        self.best = Ordered(given, self.simulator.peak(given), 0, "given")

    def found(self) -> Ordered:
        """Lists, cuts, then search: each only as long as the bound is not met."""
        given = np.arange(self.graph.count)
        bounded = order_bound(self.graph, [given], cuts=max(_FEWEST, self.cuts))
        self._raise(bounded.bytes)
        if not self.best.proven:
            for order in bounded.orders:
                self._offer(order, "cut")
            for how, order in self._lists():
                self._offer(order, how)
        if not self._is_close(self.best.bound):
            asked = np.argsort(-bounded.needs, kind="stable")[:_ASKED].tolist()
            self._refine(asked, self._search(asked))
        return self.best

    def _is_close(self, least: int) -> bool:
        """Whether an order of so many bytes would not need much less."""
        return self.best.peak - least <= self.best.peak // _CLOSE

    def _lists(self) -> Iterator[tuple[str, Integers]]:
        """Orders made step by step: least alive next from the start and the end, depth first."""
        for backward in (False, True):
            moves = Moves(self.graph, backward=backward)
            for newest in (False, True):
                name = f"greedy from the {'end' if backward else 'start'}"
                yield name, np.array(greedy(moves, newest=newest), dtype=np.int64)
        yield "depth first", np.array(depth_first(self.graph), dtype=np.int64)

    def _search(self, asked: list[int]) -> int:
        """Try limits between the bound and the best order; the least that was not refuted."""
        limit = least = self.best.bound
        open_ = self.best.peak
        for _ in range(_LIMITS):
            implied = self._implied(limit, asked)
            if not implied.refuted:
                open_ = min(open_, limit)
                if not self._try(implied, asked):
                    least = limit + 1
            least = max(least, self.best.bound)
            if self._is_close(least):
                break
            limit = (least + self.best.peak - 1) // 2
        return open_

    def _refine(self, asked: list[int], above: int) -> None:
        """Raise the bound by bisection up to `above`."""
        for _ in range(_LIMITS):
            if self.best.bound >= above:
                break
            limit = (self.best.bound + above) // 2
            if not self._implied(limit, asked).refuted:
                above = limit

    def _implied(self, limit: int, asked: list[int]) -> Implied:
        """The precedence implied by a limit; the bound rises above the limit if no order fits."""
        implied = Implied(self.graph, limit, self.cuts)
        implied.ask(asked)
        if implied.refuted:
            self._raise(limit + 1)
        return implied

    def _try(self, implied: Implied, asked: list[int]) -> bool:
        """Whether an order within the limit was found; the bound is above it if none can be."""
        graph, limit = implied.graph, implied.limit
        backward, forward = Moves(graph, backward=True), Moves(graph, backward=False)
        for run in self._starts(graph, asked):
            found = outwards(backward, forward, run, limit, self.states // 4)
            if found.path is not None:
                break
        else:
            found = from_start(forward, limit, self.states)
            if found.exhausted:
                self._raise(limit + 1)
        if found.path is not None:
            self._offer(np.array(found.path), "search")
        return found.path is not None

    def _starts(self, graph: StepGraph, asked: list[int]) -> list[Mask]:
        """The distinct states of least bytes at the steps that need most."""
        runs = (least_during(graph, step)[1] for step in asked)
        return list({run.tobytes(): run for run in runs}.values())[:_STARTS]

    def _raise(self, bound: int) -> None:
        """Take a bound, rounded up to a possible sum of sizes."""
        grain, fixed = self.graph.grain, self.graph.fixed
        bound = fixed + -(-(bound - fixed) // grain) * grain
        self.best = replace(self.best, bound=max(bound, self.best.bound))

    def _offer(self, order: Integers, how: str) -> None:
        if self.graph.peak(order) < self.best.peak:
            steps = tuple(order.tolist())
            self.best = Ordered(steps, self.simulator.peak(steps), self.best.bound, how)

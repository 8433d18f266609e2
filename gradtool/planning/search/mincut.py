"""Residuals across one instant of a program and the steps to recompute after it, by minimum cuts.

While the step at place `at` runs, some earlier storages are alive; the others that later steps need
have to be computed again.  At a price of λ units of work per byte the cheapest choice is a minimum
cut: a storage that is needed and kept pays λ · bytes, a step that runs again pays its cost and
needs all its reads.

Source: our own.  At one fixed price per tensor it is the cut that PyTorch's partitioner makes
(torch/_functorch/partitioners.py, min_cut_rematerialization_partition).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from gradtool.planning.flow import Network
from gradtool.planning.search.cost_model import CostModel

ROOM = 2**58
QUICK_ROOM = 2**29  # capacities that one 32-bit flow takes


class Choice(NamedTuple):
    """Storages kept across an instant, places of the recomputed steps; bytes and work."""

    kept: frozenset[int]
    again: frozenset[int]
    bytes: int
    cost: int


class Breakpoint(NamedTuple):
    """The choices on both sides of a capacity, and a lower bound of the work of any within it.

    `small` fits and `large`, which costs less, does not; they are the same where nothing is lost.
    """

    small: Choice
    large: Choice
    bound: Fraction


@dataclass(frozen=True)
class Instant:
    """The moment while the step at place `at` runs for the first time.

    `early` are the places that have run by then and `late` those that have not.  Steps that are in
    neither may run for the first time on either side, and cost nothing here.  All capacities of a
    cut add up to `room`, to which they are scaled and then rounded down.
    """

    work: CostModel
    at: int
    early: Collection[int]
    late: Collection[int]
    room: int = ROOM

    @classmethod
    def of(cls, work: CostModel, at: int) -> Instant:
        """The instant of a place in the base order."""
        return cls(work, at, range(at), range(at + 1, len(work.reads)))

    @cached_property
    def present(self) -> frozenset[int]:
        """Storages alive then in any case: those the step touches, and early results."""
        results = (r for r in self.work.live_out if self.work.maker[r] in self.early)
        return frozenset((*self.work.reads[self.at], *self.work.writes[self.at], *results))

    @cached_property
    def needed(self) -> list[int]:
        """Storages read by late steps, made earlier and not present anyway."""
        reads = dict.fromkeys(r for p in sorted(self.late) for r in self.work.reads[p])
        return [r for r in reads if r not in self.present and self.work.maker[r] not in self.late]

    @cached_property
    def _graph(self) -> _Graph:
        return _Graph(self)

    def capacity(self, budget: int) -> int:
        """Bytes left for residuals, if a schedule is to stay within `budget`.

        A step of several outputs may run for one of them: only the smallest that is read counts.
        An output that may be written over an input counts nothing.
        """
        work, step = self.work, self.work.order[self.at]
        simulator = work.simulator
        writes = self.work.writes[self.at]
        held = sum(work.bytes[r] for r in self.present if r not in writes)
        read = [work.bytes[r] for r in writes if r in simulator.read]
        held += sum(work.bytes[r] for r in writes if r not in simulator.read) + min(read, default=0)
        held -= work.bytes.get(work.targets[self.at], 0)
        return budget - simulator.fixed - simulator.work[step] - max(held, 0)

    def choose(self, price: Fraction | None) -> tuple[Choice, Fraction]:
        """The cheapest choice at a price per byte (None: fewest bytes), and a bound of its value.

        The second is less than the value of the cut by no more than the rounding.
        """
        return self._graph.cut(price)

    def breakpoint(self, capacity: int) -> Breakpoint | None:
        """The choices around a capacity; None if no choice fits.

        The bound is max over λ of cut(λ) - λ · capacity: a Lagrangian dual, whose maximum lies
        where the prices of the two choices meet.
        """
        large, _ = self.choose(Fraction(0))
        if large.bytes <= capacity:
            return Breakpoint(large, large, Fraction(0))
        small, _ = self.choose(None)
        if small.bytes > capacity:
            return None
        bound = Fraction(0)
        while small.cost > large.cost:
            price = Fraction(small.cost - large.cost, large.bytes - small.bytes)
            middle, least = self.choose(price)
            bound = max(bound, least - price * capacity)
            if middle.cost + price * middle.bytes >= large.cost + price * large.bytes:
                break
            if middle.bytes <= capacity:
                small = middle
            else:
                large = middle
        return Breakpoint(small, large, bound)


class _Graph:
    """The arcs of an instant's cut: source → needed storage → its step → the reads of the step."""

    def __init__(self, instant: Instant) -> None:
        self.work = work = instant.work
        self.room = instant.room
        roots = dict.fromkeys(instant.needed)
        steps: dict[int, None] = {}
        stack = list(roots)
        while stack:
            step = work.maker[stack.pop()]
            if step in steps:
                continue
            steps[step] = None
            for root in work.reads[step]:
                if root not in instant.present and root not in roots:
                    roots[root] = None
                    stack.append(root)
        self.roots, self.steps = list(roots), list(steps)
        storage = {r: 2 + i for i, r in enumerate(self.roots)}
        runs = {s: 2 + len(self.roots) + i for i, s in enumerate(self.steps)}
        self.nodes = 2 + len(self.roots) + len(self.steps)
        keep = [(storage[r], runs[work.maker[r]]) for r in self.roots]
        again = [(runs[s], 1) for s in self.steps]
        always = [(0, storage[r]) for r in instant.needed]
        always += [(runs[s], storage[r]) for s in self.steps for r in work.reads[s] if r in storage]
        ends = np.array([*keep, *again, *always], dtype=np.int64).reshape(-1, 2)
        self.network = Network(self.nodes, ends[:, 0], ends[:, 1])
        self.known: dict[Fraction | None, tuple[Choice, Fraction]] = {}
        self.bytes = [work.bytes[r] for r in self.roots]
        self.costs = [self._cost(s, is_early=s in instant.early) for s in self.steps]
        self.unlimited = np.full(len(always), -1, dtype=np.int64)

    def _cost(self, step: int, *, is_early: bool) -> int | None:
        if not is_early:
            return 0
        return self.work.costs[step] if self.work.repeatable[step] else None

    def cut(self, price: Fraction | None) -> tuple[Choice, Fraction]:
        if price not in self.known:
            self.known[price] = self._cut(price)
        return self.known[price]

    def _cut(self, price: Fraction | None) -> tuple[Choice, Fraction]:
        work = sum(c for c in self.costs if c is not None)
        byte, unit = (Fraction(1), Fraction(0)) if price is None else (price, Fraction(1))
        scale = Fraction(self.room) / max(byte * sum(self.bytes) + unit * work, Fraction(1))
        capacities = [*_rounded(self.bytes, byte * scale), *_rounded(self.costs, unit * scale)]
        arcs = np.concatenate([np.array(capacities, dtype=np.int64), self.unlimited])
        value, side = self.network.cut(arcs, 0, 1)
        return self._choice(side), Fraction(value) / scale

    def _choice(self, side: np.ndarray[Any, np.dtype[np.bool_]]) -> Choice:
        needed, runs = side[2 : 2 + len(self.roots)], side[2 + len(self.roots) :]
        again = frozenset(s for s, inside in zip(self.steps, runs.tolist(), strict=True) if inside)
        kept = [
            (r, b)
            for r, b, inside in zip(self.roots, self.bytes, needed.tolist(), strict=True)
            if inside and self.work.maker[r] not in again
        ]
        costs = dict(zip(self.steps, self.costs, strict=True))
        cost = sum(costs[s] or 0 for s in again)
        return Choice(frozenset(r for r, _ in kept), again, sum(b for _, b in kept), cost)


def _rounded(amounts: list[int] | list[int | None], scale: Fraction) -> list[int]:
    """Amounts times a scale, rounded down, so that no cut is too large; -1 stands for ∞."""
    top, bottom = scale.numerator, scale.denominator
    return [-1 if a is None else a * top // bottom for a in amounts]

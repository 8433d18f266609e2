"""Building an order step by step, from its start or from its end."""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np

from gradtool.planning.flow import Mask
from gradtool.planning.orders.graph import StepGraph, bits


class State(NamedTuple):
    """Run steps (as bits), the bytes alive then, the ready steps, the moves so far.

    A path is `(path before, step)`, or None.  `tight` are moves that add nothing but do not fit.
    """

    run: int
    live: int
    ready: tuple[int, ...]
    path: Any = None
    tight: frozenset[int] = frozenset()


class Moves:
    """Moves between states: forward one more step runs, backward the last one is taken back."""

    def __init__(self, graph: StepGraph, *, backward: bool) -> None:
        self.graph, self.backward = graph, backward
        self.needed = graph.after_bits if backward else graph.before_bits
        self.freed = graph.before if backward else graph.after
        readers, self.left, self.room = graph.weights
        self._reads = [
            [(readers[r], graph.size[r]) for r in reads if not graph.stays[r]]
            for reads in graph.reads
        ]
        self._donors = [[readers[r] for r in donors] for donors in graph.donates]

    def start(self, run: Mask) -> State:
        """The state after these steps."""
        done = bits(np.flatnonzero(run).tolist())
        ready = tuple(v for v in range(self.graph.count) if self.can(done, v))
        return State(done, self.graph.live(run), ready)

    def ends(self) -> tuple[State, int]:
        """The initial state, and the run steps of the final one."""
        none, every = 0, (1 << self.graph.count) - 1
        state = self.start(np.full(self.graph.count, self.backward))
        return state, none if self.backward else every

    def can(self, run: int, step: int) -> bool:
        """Whether a step can move."""
        if self.backward:
            return run >> step & 1 == 1 and not self.needed[step] & run
        return not run >> step & 1 and not self.needed[step] & ~run

    def weigh(self, run: int, live: int, step: int) -> tuple[int, int]:
        """Bytes alive while a step runs, and in the state after its move."""
        waiting = ~run & ~(1 << step)
        dead = 0
        for readers, size in self._reads[step]:
            if not readers & waiting:
                dead += size
        room = self.room[step]
        for readers in self._donors[step]:
            if not readers & waiting:
                room -= self.graph.gain[step]
                break
        grown = self.left[step] - dead
        return (live - grown + room, live - grown) if self.backward else (live + room, live + grown)

    def make(self, state: State, step: int, live: int) -> State:
        """The state after the move of a step."""
        run = state.run ^ (1 << step)
        ready = [v for v in state.ready if v != step]
        ready += [v for v in self.freed[step] if self.can(run, v)]
        return State(run, live, tuple(ready), (state.path, step))

    def beside(self, step: int) -> list[int]:
        """The steps whose moves weigh something else after the move of a step."""
        return [v for storage in self.graph.reads[step] for v in self.graph.readers[storage]]


def steps(path: Any) -> list[int]:
    """The moves of a path, first to last."""
    found = []
    while path is not None:
        path, step = path
        found.append(step)
    return found[::-1]


def greedy(moves: Moves, *, newest: bool) -> list[int]:
    """The greedy order: always the move after which fewest bytes are alive.

    Of equal moves, the one that became possible last, or that comes first in the file.
    """
    state, goal = moves.ends()
    run = state.run
    sign = -1 if moves.backward else 1
    grown: dict[int, int] = {}
    waiting: list[tuple[int, int, int]] = []
    since: dict[int, int] = {}

    def offer(step: int) -> None:
        growth = moves.weigh(run, 0, step)[1]
        if grown.get(step) != growth:
            grown[step] = growth
            heapq.heappush(waiting, (growth, -since[step] if newest else sign * step, step))

    for step in state.ready:
        since[step] = 0
        offer(step)
    made: list[int] = []
    while run != goal:
        growth, _, step = heapq.heappop(waiting)
        if grown.get(step) != growth:
            continue
        del grown[step]
        run ^= 1 << step
        made.append(step)
        for other in moves.freed[step]:
            if moves.can(run, other):
                since[other] = len(made)
                offer(other)
        for other in moves.beside(step):
            if other in grown:
                offer(other)
    return made[::-1] if moves.backward else made


def depth_first(graph: StepGraph) -> list[int]:
    """Each step behind all its predecessors, from the last step of the file on."""
    done: dict[int, None] = {}
    for last in reversed(range(graph.count)):
        waiting = [last]
        while waiting:
            step = waiting[-1]
            missing = [s for s in graph.before[step] if s not in done]
            waiting += missing
            if not missing:
                done.setdefault(waiting.pop())
    return list(done)

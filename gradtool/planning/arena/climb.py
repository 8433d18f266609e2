"""The least capacity that a problem fits: upwards from its load, then between what is known."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gradtool.planning.arena import cpsat
from gradtool.planning.arena.canonical import FOUND, IMPOSSIBLE, STOPPED
from gradtool.planning.arena.compiled import search
from gradtool.planning.arena.problem import RANKS, Numbers, Problem

RUNGS = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
FIRST_SLICE = 250_000
SLICE_GROWTH = 4
RUNG_SHARE = 16
CLOSE = 1000


@dataclass
class Climb:
    """What is known about the least capacity of `problem`: at least `bound`, at most `size`.

    Sizes are in units of the problem; `work` is what may still be spent.  `given_up` is the
    largest capacity that neither fitted nor was proven impossible.
    """

    problem: Problem
    offsets: Numbers
    bound: int
    work: int
    fast: bool
    how: str
    size: int = field(init=False)
    given_up: int = 0

    def __post_init__(self) -> None:
        self.size = height(self.problem, self.offsets)

    def run(self, hint: int | None) -> None:
        """Search until the bound is met or the work is spent; a hint is tried after the load."""
        share = self.work // 2
        self.attempt(self.bound, share)
        if hint is not None and self.bound < hint < self.size:
            self.attempt(hint, self.work // 2)
        share = self.work // RUNG_SHARE
        while self.work > 0 and (capacity := self.next_capacity()):
            self.attempt(capacity, share)

    def next_capacity(self) -> int:
        """What to try next: a rung of the ladder, or the middle of what is open; 0 for nothing."""
        if self.bound >= self.size:
            return 0
        if not self.given_up:
            return (self.bound + self.size - 1) // 2
        if self.size - self.given_up <= max(1, self.size // CLOSE):
            return 0
        rungs = (int(self.problem.load * (1 + r)) for r in RUNGS)
        middle = (self.given_up + self.size) // 2
        return min((r for r in rungs if self.given_up < r < middle), default=middle)

    def attempt(self, capacity: int, work: int) -> None:
        """Race the orders in turns at one capacity, and learn from the verdict."""
        if capacity >= self.size:
            return
        verdict, keys = STOPPED, ""
        piece, end = FIRST_SLICE, self.work - work
        while verdict == STOPPED and self.work > end:
            for keys in RANKS:
                limit = min(piece, self.work - end)
                verdict, used, offsets = search(
                    self.problem, ranks(self.problem, keys), capacity, limit, fast=self.fast
                )
                self.work -= used
                if verdict != STOPPED or self.work <= end:
                    break
            piece *= SLICE_GROWTH
        if verdict == FOUND:
            self.improved(np.array(offsets, dtype=np.int64), f"search {keys}")
        elif verdict == IMPOSSIBLE:
            self.bound = capacity + 1
            self.given_up = self.given_up if self.given_up > capacity else 0
        else:
            self.given_up = max(self.given_up, capacity)

    def solve(self, time: float) -> None:
        """Let CP-SAT close what is open, for `time` of its deterministic time."""
        if self.bound < self.size and cpsat.available(self.problem):
            offsets, self.bound = cpsat.improve(self.problem, self.offsets, self.bound, time)
            if offsets is not None:
                self.improved(offsets, "CP-SAT")

    def improved(self, offsets: Numbers, how: str) -> None:
        """Keep a smaller packing."""
        self.offsets, self.how, self.size = offsets, how, height(self.problem, offsets)


def height(problem: Problem, offsets: Numbers) -> int:
    """The size of a packing, in units of the problem."""
    return int((offsets + problem.size).max())


def ranks(problem: Problem, keys: str) -> list[int]:
    """The place of each buffer in an order."""
    order = problem.order(keys)
    found = np.empty_like(order)
    found[order] = np.arange(len(order))
    return [int(rank) for rank in found]

"""The least capacity for a problem: first its load, then larger ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gradtool.planning.packing.problem import RANKS, Numbers, Problem

FIRST_PIECE = 250_000
GROWTH = 4
CAPACITIES = 16


@dataclass
class Climb:
    """Bounds of the least capacity of `problem`: at least `bound`, at most `size`.

    Sizes are in units of the problem; `work` is the amount left to spend.
    """

    problem: Problem
    offsets: Numbers
    bound: int
    work: int
    how: str
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = height(self.problem, self.offsets)

    def run(self, hint: int | None) -> None:
        """Search until the bound is met or the work is spent; a hint is tried after the load.

        Half of the work goes to the bound, the rest to several capacities up to the size:
        whether a capacity is easy has little to do with how tight it is, so many are tried a
        little before any is tried much.
        """
        end, piece = self.work // 2, FIRST_PIECE
        while self.bound < self.size and self.work > end:
            self.attempt(self.bound, piece, end)
            piece *= GROWTH
        if hint is not None and self.bound < hint < self.size:
            self.attempt(hint, self.work // (2 * len(RANKS)))
        piece = FIRST_PIECE
        while self.bound < self.size and self.work > 0:
            size, bound = self.size, self.bound
            for capacity in sorted(
                {bound + (size - bound) * k // CAPACITIES for k in range(CAPACITIES)}
            ):
                if self.bound <= capacity < self.size:
                    self.attempt(capacity, piece)
            if (self.size, self.bound) == (size, bound):
                piece *= GROWTH

    def attempt(self, capacity: int, piece: int, end: int = 0) -> None:
        """Try each order for a piece of the work, `end` of it left for later."""
        from gradtool.planning.packing.canonical import FOUND, IMPOSSIBLE, fit

        for keys in RANKS:
            limit = min(piece, self.work - end)
            if limit <= 0:
                return
            order = ranks(self.problem, keys)
            verdict, used, offsets = fit(self.problem, order, capacity, limit)
            self.work -= used
            if verdict == FOUND:
                self.improved(np.array(offsets, dtype=np.int64), f"search {keys}")
                return
            if verdict == IMPOSSIBLE:
                self.bound = capacity + 1
                return

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

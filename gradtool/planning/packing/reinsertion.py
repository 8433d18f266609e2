"""Packing again and again: buffers that end up too high are placed earlier the next time.

Buffers are placed one by one into the lowest gap.  Those whose top lies above a line come first in
the next turn, the most frequent ones before others.

Source: Squeaky Wheel Optimization (Joslin and Clements, JAIR 10, 1999).
"""

from __future__ import annotations

import numpy as np

from gradtool.native import gaps
from gradtool.native.call import Call
from gradtool.planning.packing.gaps import FAR, NOTHING, Rule, fill_by_numpy
from gradtool.planning.packing.problem import Problem


class Turns:
    """The blame of each buffer so far, and the lowest packing found.

    `keys` order buffers of equal blame (`Problem.order`).  The line is so many `quarters` of the
    way from `least` to the top.  `most` is the number of turns to come.
    """

    def __init__(self, problem: Problem, least: int, keys: str, quarters: int, most: int) -> None:
        self.problem, self.least, self.quarters, self.most = problem, least, quarters, most
        self.best = np.zeros_like(problem.size)
        self._ranked = problem.order(keys)
        self._blamed = np.zeros_like(problem.size)
        self._lowest = np.array([FAR])

    @property
    def lowest(self) -> int:
        """The height of the lowest packing."""
        return int(self._lowest[0])

    def call(self, turns: int) -> Call:
        """Packs so many times more, or until `least` is reached, in the library."""
        problem, count = self.problem, len(self._ranked)
        found, order, work = (np.empty(n * count, np.int64) for n in (1, 1, gaps.PLACED))
        return gaps.repeat(
            problem.start, problem.stop, problem.size, self._ranked, self._blamed, self.best,
            self._lowest, found, order, work, np.empty(self.most + 1, np.int64),
            least=self.least, quarters=self.quarters, turns=turns,
        )  # fmt: skip

    def go_by_numpy(self, turns: int) -> None:
        """Take turns in numpy, like `call` in the library."""
        problem, found = self.problem, np.empty_like(self.best)
        rank = np.argsort(self._ranked)
        for _ in range(turns):
            if self.lowest <= self.least:
                break
            order = np.argsort(rank - len(rank) * self._blamed)
            fill_by_numpy(problem, order, found, NOTHING, FAR, FAR, Rule.LOWEST)
            top = found + problem.size
            height = int(top.max())
            if height < self.lowest:
                self.best[:], self._lowest[0] = found, height
            line = self.least + self.quarters * (height - self.least) // 4
            self._blamed[top > line] += 1

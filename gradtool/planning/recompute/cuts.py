"""Cuts of the forward part: instants at which few bytes have to be held."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate

from gradtool.program import Program


@dataclass(frozen=True)
class Cuts:
    """The instants after each forward step, in order; sizes in bytes.

    `steps` are the numbers of the forward steps, `made` the bytes computed up to each instant,
    `residuals` the bytes computed before and read after it by forward steps, `across` the number of
    storages that these are.  Parameters and graph inputs are there anyway and do not count.
    `lives` are storages with the instants from and up to which each crosses.
    """

    program: Program
    steps: tuple[int, ...]
    made: tuple[int, ...]
    residuals: tuple[int, ...]
    across: tuple[int, ...]
    lives: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, program: Program) -> Cuts:
        """The instants of a program."""
        steps = [i for i, step in enumerate(program.steps) if step.stage == "forward"]
        place = {step: p for p, step in enumerate(steps)}
        born = {v: place[s] for s in steps for v in program.steps[s].writes}
        last = dict(born)
        for step in steps:
            for value in program.steps[step].reads:
                root = program.storage(value)
                if root in last:
                    last[root] = place[step]
        size = {v: program.aligned(program.values[v].bytes) for v in born}
        made, residuals, across = ([0] * (len(steps) + 1) for _ in range(3))
        lives = tuple((value, first, last[value]) for value, first in born.items())
        for value, first in born.items():
            made[first] += size[value]
            for change, amount in ((residuals, size[value]), (across, 1)):
                change[first] += amount
                change[last[value]] -= amount
        sums = [tuple(accumulate(counts[:-1])) for counts in (made, residuals, across)]
        return cls(program, tuple(steps), sums[0], sums[1], sums[2], lives)

    def even(self, segments: int) -> list[int]:
        """Instants that cut forward into about `segments` parts of equal bytes.

        Each is looked for within half a part around where it should lie: an articulation
        if there is one, else the instant that the fewest bytes cross; the nearest of several.
        """
        total = self.made[-1] if self.made else 0
        found: list[int] = []
        for number in range(1, segments):
            goal = total * number / segments
            near = [
                p
                for p in self._around(goal, total / (2 * segments))
                if p > (found[-1] if found else -1) and p < len(self.steps) - 1
            ]
            if near:
                found.append(min(near, key=lambda p: self._cost(p, goal)))
        return found

    def values(self, instants: list[int]) -> list[int]:
        """The storages that cross some instants, in the order they are computed."""
        later = [*instants, len(self.steps)]
        return [v for v, first, last in self.lives if later[bisect_left(instants, first)] < last]

    def _cost(self, place: int, goal: float) -> tuple[bool, int, float, int]:
        distance = abs(self.made[place] - goal)
        crowded = self.across[place] != 1
        return crowded, self.residuals[place], distance, place

    def _around(self, goal: float, reach: float) -> range:
        """The instants with between `goal - reach` and `goal + reach` bytes computed."""
        first = bisect_left(self.made, goal - reach)
        last = bisect_right(self.made, goal + reach)
        return range(first, max(last, first + 1))


def square_root(count: int) -> int:
    """The number of segments of Chen et al. for a chain of `count` steps: about √count."""
    return max(round(math.sqrt(count)), 2)

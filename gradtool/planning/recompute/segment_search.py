"""Automatic segments: √n of equal bytes, or the number of least peak.

Source: Chen et al. 2016 (arXiv:1604.06174), section 3: √n segments of a chain of n layers.  We
differ in that n counts forward steps, and that segments end where a single value crosses (an
articulation point) or, in nets of many branches, where the fewest bytes do.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

from gradtool.planning.recompute.groups import best_groups
from gradtool.planning.recompute.result import Work
from gradtool.planning.recompute.segments import (
    Segmented,
    Segments,
    schedule_of,
    segment_of,
    segmented,
)
from gradtool.planning.schedule import Schedule
from gradtool.planning.simulate import Simulator
from gradtool.program import Program

STEPS = 400_000
"""Steps of the schedules that the search for a number of segments may weigh."""


def sqrt_segments(program: Program) -> Segmented:
    """√n segments of equal bytes, n being the number of forward steps."""
    cuts = Cuts.of(program)
    instants = cuts.even(square_root(len(cuts.steps)))
    return segmented(Simulator.of(program), _segments(cuts, instants), _notes(cuts, instants))


def best_segments(program: Program) -> Segmented:
    """The number of segments of equal bytes with the least peak, from 2 to 2√n.

    Only those of these segments are recomputed that lower the peak.  In large programs not every
    number is tried, but numbers spread evenly over the range on a logarithmic scale.
    """
    simulator, cuts = Simulator.of(program), Cuts.of(program)
    tried: dict[tuple[int, int, int], list[int]] = {}
    for number in _numbers(len(cuts.steps), len(program.steps)):
        instants = cuts.even(number)
        schedule = schedule_of(program, _segments(cuts, instants))
        work = Work.of(program, schedule.recomputed)
        tried.setdefault((simulator.peak(schedule.order), work.flops, number), instants)
    instants = tried[min(tried)]
    segments = _segments(cuts, instants)
    groups: list[list[int]] = [[] for _ in instants]
    for step, number in segment_of(program, segments.ends).items():
        groups[number].append(step)
    only = best_groups(simulator, schedule_of(program, segments), groups)
    notes = [*_notes(cuts, instants), f"{len(only)} of {len(groups)} segments lower the peak"]
    return segmented(simulator, replace(segments, only=frozenset(only)), notes)


def segment_schedules(program: Program) -> Iterator[Schedule]:
    """Schedules of 2, 3, 4, 6, 8, 12, … segments of equal bytes, up to 2√n."""
    cuts = Cuts.of(program)
    most = 2 * square_root(len(cuts.steps))
    number = 2
    while number <= most:
        yield schedule_of(program, _segments(cuts, cuts.even(number)))
        number += number // 2 if number.bit_count() == 1 else number // 3


def _segments(cuts: Cuts, instants: list[int]) -> Segments:
    """Segments with the given ends, which hold the values crossing these."""
    return Segments(tuple(cuts.steps[p] for p in instants), tuple(cuts.values(instants)))


def _notes(cuts: Cuts, instants: list[int]) -> list[str]:
    crowded = sum(cuts.across[p] != 1 for p in instants)
    note = f"{crowded} of {len(instants)} checkpoints have more than one tensor"
    return [note] if crowded else []


def _numbers(forward: int, steps: int) -> list[int]:
    """The numbers of segments to try."""
    most = max(2 * square_root(forward), 2)
    count = max(STEPS // max(steps, 1), 4)
    if most - 1 <= count:
        return list(range(2, most + 1))
    return sorted({round(2 * (most / 2) ** (i / (count - 1))) for i in range(count)})


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

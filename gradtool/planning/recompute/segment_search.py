"""Automatic segments: √n of equal bytes, or the number of least peak.

Source: Chen et al. 2016 (arXiv:1604.06174), section 3: √n segments of a chain of n layers.  We
differ in that n counts forward steps, and that segments end where a single value crosses (an
articulation point) or, in nets of many branches, where the fewest bytes do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradtool.planning.recompute.cuts import Cuts, square_root
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

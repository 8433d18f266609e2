"""The outcome of recompute: the schedule, its peak and the extra work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from gradtool.planning.schedule import Schedule, pruned
from gradtool.planning.simulate import Simulator
from gradtool.program import Program
from gradtool.text.json_schema import Count


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs of some steps, and how many of them have an unknown cost, counted as 0."""

    flops: Count
    unknown: Annotated[Count, "Steps of unknown cost."]

    @classmethod
    def of(cls, program: Program, steps: Iterable[int]) -> Work:
        """The work of steps of a program, once for each time they are listed."""
        costs = [program.steps[s].flops for s in steps]
        return cls(sum(c for c in costs if c is not None), sum(c is None for c in costs))


@dataclass(frozen=True)
class Outcome:
    """A schedule by the simulator.  Bytes are those of the busiest step, all regions included.

    `keep_peak` is the peak without any recompute, `clones` the number of recomputed steps and
    `extra` their cost; `total` is the work of a step in which nothing runs again.
    """

    schedule: Schedule
    peak: int
    keep_peak: int
    clones: int
    extra: Work
    total: Work

    @property
    def extra_percent(self) -> float | None:
        """Extra FLOPs in percent of a step without recompute; None if no cost is known."""
        return 100 * self.extra.flops / self.total.flops if self.total.flops else None

    @property
    def is_better(self) -> bool:
        """Whether the peak is lower than without recompute."""
        return self.peak < self.keep_peak


def outcome(simulator: Simulator, schedule: Schedule) -> Outcome:
    """The peak and work of a schedule, dead instances left out."""
    program = simulator.program
    schedule = pruned(program, schedule)
    plain = range(len(program.steps))
    again = schedule.recomputed
    return Outcome(
        schedule=schedule,
        peak=simulator.peak(schedule.order),
        keep_peak=simulator.peak(plain),
        clones=len(again),
        extra=Work.of(program, again),
        total=Work.of(program, plain),
    )

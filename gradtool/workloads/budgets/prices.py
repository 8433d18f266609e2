"""Costs of running a step again: its FLOPs, or the time that it was measured to take."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gradtool.errors import UsageError
from gradtool.graph.injection import provided
from gradtool.operators.kernel_sets import NONE
from gradtool.program import Program, profile
from gradtool.program.profile import Profile
from gradtool.text.names import escape, shorten
from gradtool.text.words import suggest
from gradtool.workloads.names import FLAGS, KERNELS
from gradtool.workloads.workload import Workload

NANOSECONDS = 10**9


@dataclass(frozen=True)
class Prices:
    """The cost of each step of a program in `unit`, None where a step may not run again.

    Without `costs`, the steps' FLOPs.
    """

    costs: tuple[int | None, ...] | None = None
    unit: str = "FLOPs"

    def of(self, program: Program) -> tuple[int | None, ...]:
        """The cost of every step."""
        return tuple(s.flops for s in program.steps) if self.costs is None else self.costs

    def forward(self, program: Program) -> int:
        """The cost of one forward pass."""
        priced = zip(program.steps, self.of(program), strict=True)
        return sum(cost or 0 for step, cost in priced if step.stage == "forward")

    def total(self, program: Program) -> int:
        """The cost of one step without recompute."""
        return sum(cost or 0 for cost in self.of(program))


FLOPS = Prices()
Named = Callable[[Workload], Prices]


def measured(work: Workload, profile: Profile, source: str) -> Prices:
    """Prices in nanoseconds, from the seconds that a profile has for each node.

    Raises:
        UsageError: a node that runs has no time, or is another operator there; or other kernels
            were measured than the steps are planned for.
    """
    if work.kernels != NONE and profile.kernels not in (None, work.kernels):
        raise UsageError(
            f"{source}: the times are of {KERNELS[profile.kernels]}, here a step is planned for "
            f"{KERNELS[work.kernels]}: measure those with gradtool run --profile FILE "
            f"{FLAGS[work.kernels]}"
        )
    seconds = {}
    for step in work.apart.steps:
        timed = profile.nodes.get(step.name)
        if timed is None:
            raise UsageError(f"{source}: no time of node {step.name!r}: it is of another model")
        if timed.op != step.op:
            raise UsageError(f"{source}: node {step.name!r} is {timed.op}, here it is {step.op}")
        seconds[step.name] = timed.seconds
    steps = work.program.steps
    costs = [round(sum(seconds[name] for name in s.names) * NANOSECONDS) for s in steps]
    return Prices(tuple(costs), "ns")


def named(cost: str) -> Named:
    """Costs of steps: `flops`, `time` measured now on random inputs, or a file of times.

    Raises:
        UsageError: the file cannot be read or is no profile.
    """
    if cost == "flops":
        return lambda _: FLOPS
    if cost == "time":
        return lambda work: measured(work, provided("timing")(work), "measured now")
    if not Path(cost).suffix and not os.path.exists(cost):  # noqa: PTH110 - takes any text
        shown = shorten(escape(cost), 40, ellipsis="...")
        hint = suggest(cost, ("flops", "time"))
        raise UsageError(f"no cost {shown!r}{hint}; it is flops, time or a FILE of times")
    found = profile.load(cost)
    return lambda work: measured(work, found, cost)

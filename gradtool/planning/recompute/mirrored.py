"""A mirror decision applied: only the groups of clones that lower the peak, each as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from gradtool.planning.recompute.groups import best_groups
from gradtool.planning.recompute.late_clones import late
from gradtool.planning.recompute.mirror import Decision
from gradtool.planning.recompute.result import Outcome, outcome
from gradtool.planning.schedule import MIRRORED
from gradtool.planning.simulate import Simulator
from gradtool.program import Program


@dataclass(frozen=True)
class Mirrored:
    """The outcome of a mirror decision.

    `decided` is how many nodes it mirrors, views among them; `applied` are the names of the steps
    that then do run again.
    """

    outcome: Outcome
    decided: int
    applied: tuple[str, ...]


def mirrored(program: Program, decision: Decision) -> Mirrored:
    """Apply the groups of a decision that lower the peak of `program`; else keep everything.

    Source: MXNet applies every decision; we differ in that each group has to pay.
    """
    simulator = Simulator.of(program)
    numbers = {step.name: i for i, step in enumerate(program.steps)}
    groups = [[numbers[name] for name in group if name in numbers] for group in decision.groups]
    everything = {step: MIRRORED for group in groups for step in group}
    taken = best_groups(simulator, late(program, everything), groups)
    found = outcome(simulator, late(program, {s: MIRRORED for g in taken for s in groups[g]}))
    if not found.is_better:
        found = outcome(simulator, late(program, {}))
    names = tuple(program.steps[s].name for s in found.schedule.recomputed)
    return Mirrored(found, decision.mirrored, names)

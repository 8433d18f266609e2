"""A chosen plan, and the sentences about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from gradtool.planning.plan import Plan
from gradtool.planning.recompute.mirror import Decision
from gradtool.planning.schedule import Schedule
from gradtool.planning.search.proof import Proof

if TYPE_CHECKING:
    from gradtool.workloads.workload import Workload


class Arena:
    """The arena of a schedule, whose plan is made when it is looked at.

    `making` makes the plan; `told` says the bytes without it, or None where only the plan can.
    """

    def __init__(self, making: Callable[[], Plan], told: Callable[[], int | None]) -> None:
        self._making, self._told = making, told

    @classmethod
    def of(cls, plan: Plan) -> Arena:
        """The arena of a plan."""
        return cls(lambda: plan, lambda: plan.peak)

    @cached_property
    def plan(self) -> Plan:
        """The plan."""
        return self._making()

    @cached_property
    def peak(self) -> int:
        """The bytes of the arena, without a plan if possible."""
        told = self._told()
        return self.plan.peak if told is None else told


@dataclass(frozen=True)
class Planned:
    """A plan and the `schedule` it is of.

    `name` is that of the strategy, `arena` makes the plan when it is looked at.  `notes` are lines
    for people, `details` those for people who ask how it was found; `decision` is what mirroring
    decided, also where the plan does not apply it; `proof` says how good a plan within a budget is.
    `form` is the training graph that the schedule is of, where loops of the one that was asked
    about take turns again.
    """

    name: str
    arena: Arena
    schedule: Schedule
    notes: tuple[str, ...] = ()
    decision: Decision | None = None
    proof: Proof | None = None
    details: tuple[str, ...] = ()
    form: Workload | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        return f"Planned({self.name!r}, peak {self.peak} bytes)"

    @property
    def plan(self) -> Plan:
        """The plan, under its name."""
        plan = self.arena.plan
        return plan if plan.name == self.name else replace(plan, name=self.name)

    @property
    def peak(self) -> int:
        """The bytes of its arena, also where the plan is not made yet."""
        return self.arena.peak

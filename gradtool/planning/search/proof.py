"""The cost of a plan within a budget, and a lower bound for every plan."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Proof:
    """Extra work of a plan beside its proven lower bound.

    `budget` is in bytes of arena, `least` bytes below which there is no plan that runs no more than
    `allowed` again (None: whatever it runs).  `extra`, `bound`, `total` and `allowed` are in
    `unit`: recomputed work, its least within the budget, one step without recompute, and the work
    asked for.  `which_bound` names the proof of the bound, `how` the origin of the plan.  A plan
    that is `cut_short` depends on the clock, which decided how far to search: on another machine it
    may be another one.  A plan proven to be the best is not cut short.
    """

    budget: int
    least: int
    extra: int
    bound: int
    total: int
    which_bound: str
    how: str
    unit: str = "FLOPs"
    allowed: int | None = None
    cut_short: bool = False

    @property
    def gap(self) -> int:
        """Work between the plan and the bound, in `unit` (FLOPs); 0 if proven optimal."""
        return self.extra - self.bound

    def share(self, work: int) -> float:
        """The share of work in one step without recompute.

        Args:
            work: in `unit`, such as `extra`.
        """
        return work / self.total if self.total else 0.0

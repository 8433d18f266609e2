"""What a plan within a budget costs, and how little any plan could."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Proof:
    """Extra work of a plan beside the least that is proven necessary.

    `budget` is in bytes of arena, `least` bytes below which there is no plan that runs no more than
    `allowed` again (None: whatever it runs).  `extra`, `bound`, `total` and `allowed` are in
    `unit`: what runs again, what every plan within the budget runs again, one step without
    recompute, and the work asked for.
    `which_bound` says what proves the bound, `how` where the plan comes from.  A plan that is
    `cut_short` depends on the clock, which decided how far to search: on another machine it may be
    another one.  What is proven to be the best is not cut short.
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
        """The share of work in that of one step without recompute.

        Args:
            work: in `unit`, such as `extra`.
        """
        return work / self.total if self.total else 0.0

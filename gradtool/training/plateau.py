"""The learning rate by evaluations: lower where the first metric gets no better.

Source: torch.optim.lr_scheduler.ReduceLROnPlateau (PyTorch 2), with thresholds relative to the best
value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

NAME = "reduce-on-plateau"
GIVEN: Mapping[str, float] = MappingProxyType({
    "factor": 0.1, "patience": 10.0, "threshold": 1e-4, "cooldown": 0.0, "min-lr": 0.0, "eps": 1e-8,
})  # fmt: skip


@dataclass(frozen=True)
class Plateau:
    """The `rate` of now, and what decides when it falls.

    `best` is the best value so far, None before the first; `bad` are evaluations since that were no
    better, `cooling` those that do not count yet.
    """

    rate: float
    best: float | None = None
    bad: int = 0
    cooling: int = 0

    def after(self, value: float, given: Mapping[str, float], *, higher: bool) -> Plateau:
        """The state after an evaluation whose first metric is `value`."""
        is_better = math.isfinite(value) and self._is_better(value, given["threshold"], higher)
        best = value if is_better else self.best
        bad = 0 if is_better else self.bad + 1
        cooling = self.cooling
        if cooling > 0:
            cooling, bad = cooling - 1, 0
        if bad <= given["patience"]:
            return replace(self, best=best, bad=bad, cooling=cooling)
        lower = max(self.rate * given["factor"], given["min-lr"])
        rate = lower if self.rate - lower > given["eps"] else self.rate
        return Plateau(rate, best, 0, int(given["cooldown"]))

    def _is_better(self, value: float, threshold: float, higher: bool) -> bool:  # noqa: FBT001
        if self.best is None:
            return True
        least = self.best * (1 + threshold if higher else 1 - threshold)
        return value > least if higher else value < least

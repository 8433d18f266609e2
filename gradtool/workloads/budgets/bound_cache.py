"""Proven bounds of all plans of a training graph: how little memory and work they can do with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gradtool.planning.search.certificate import certificates
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.work_bound import least_budget


@dataclass(frozen=True)
class Bound:
    """Least recomputation of every plan of so many bytes or fewer, and its proof."""

    budget: int
    work: int
    how: str


class Known:
    """The bounds that were proven so far of a program whose steps have costs."""

    def __init__(self, work: CostModel) -> None:
        self.work = work
        self.bounds: list[Bound] = []
        self._excluded = -1
        self._proved: set[tuple[int, float]] = set()

    @cached_property
    def least(self) -> int:
        """Bytes that every plan takes, whatever it computes again."""
        return least_budget(self.work)

    def least_of(self, allowed: int | None) -> int:
        """Least bytes of every plan with no more than `allowed` recomputation."""
        least = max(self.least, self._excluded + 1)
        if allowed is None:
            return least
        return max([least, *(b.budget + 1 for b in self.bounds if b.work > allowed)])

    def strongest(self, budget: int) -> Bound | None:
        """The bound of a budget that says most."""
        fits = (b for b in self.bounds if b.budget >= budget)
        return max(fits, key=lambda b: b.work, default=None)

    def prove(self, budget: int, effort: float, enough: int | None = None) -> None:
        """Learn the least recomputation within a budget, or a bound above `enough`."""
        if (budget, effort) in self._proved:
            return
        for certificate in certificates(self.work, budget, effort):
            known = (None, "") if certificate is None else (certificate.bound, certificate.how)
            self.learn(budget, *known)
            if enough is not None and self.least_of(enough) > budget:
                return
        self._proved.add((budget, effort))

    def learn(self, budget: int, work: int | None, how: str) -> None:
        """Note what every plan within a budget does; None if there is none."""
        if work is None:
            self._excluded = max(self._excluded, budget)
        else:
            self.bounds.append(Bound(budget, work, how))

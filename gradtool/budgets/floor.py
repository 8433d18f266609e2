"""How little memory a plan of some work can take, proven before anything is searched for."""

from __future__ import annotations

from gradtool.budgets.probes import Probes
from gradtool.budgets.search import least_known, resolution

_ROUNDS = 6


def raise_floor(probes: Probes, allowed: int | None, effort: float) -> None:
    """Halve the range between what no plan of so much work fits into and what one does.

    Each budget on the way is asked what work it takes at least (bound c), which is far cheaper than
    a search for a plan.  What is proven serves every later question.
    """
    fine = resolution(probes)
    low, high = probes.least_of(allowed), least_known(probes, allowed).plan.peak
    for _ in range(_ROUNDS):
        if high - low <= fine:
            break
        middle = (low + high) // 2
        probes.prove(middle, effort)
        low, high = max(low, probes.least_of(allowed)), middle if low > middle else high

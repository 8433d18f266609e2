"""How little memory a plan of some work can take, proven before anything is searched for."""

from __future__ import annotations

from gradtool.workloads.budgets.probes import Probes

_ROUNDS = 5


def raise_floor(probes: Probes, allowed: int | None, effort: float) -> None:
    """Halve the range between what no plan of so much work fits into and what one does.

    Each budget on the way is asked what work it takes at least (bound c), which is far cheaper than
    a search for a plan.  What is proven serves every later question.
    """
    low, high = probes.least_of(allowed), probes.reached(allowed)
    for _ in range(_ROUNDS):
        if high - low <= probes.resolution:
            break
        middle = (low + high) // 2
        probes.prove(middle, effort)
        least = probes.least_of(allowed)
        low, high = (least, high) if least > middle else (low, middle)

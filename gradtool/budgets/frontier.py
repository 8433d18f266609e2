"""The frontier of memory and work: the cheapest plans within several budgets."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from gradtool.budgets.probes import Probes
from gradtool.budgets.search import FEW_ROUNDS, QUICK, Search, halved, least_known
from gradtool.budgets.stopping import TimeIsUp, time_limit
from gradtool.plans import Planned, Workload

POINTS = 20


def frontier(work: Workload, points: int = POINTS, search: Search | None = None) -> list[Planned]:
    """The cheapest plans within budgets spread evenly from the least peak found to keeping all.

    Budgets rise; work never rises with them.  Where a search was cut short, points are missing.
    """
    search = search or Search(QUICK)
    probes = search.probes(work, "optimal")
    try:
        with time_limit(search.seconds):
            halved(probes, None, min(QUICK, search.effort), FEW_ROUNDS)
            for budget in _spread(probes, points):
                probes.ask(budget, search.effort)
        stopped = probes.stop()
    except (KeyboardInterrupt, TimeIsUp):
        stopped = True
    found = [p for budget in _spread(probes, points) if (p := probes.known(budget)) is not None]
    return [replace(p, proof=p.proof and replace(p.proof, cut_short=stopped)) for p in found]


def by_slowdown(
    work: Workload, shares: list[Fraction], search: Search | None = None
) -> list[Planned]:
    """The plans of least peak that compute no more than each share of a step again."""
    search = search or Search(QUICK)
    probes = search.probes(work, "optimal")
    allowed = [int(share * probes.total) for share in shares]
    for work_allowed in sorted(allowed, reverse=True):
        halved(probes, work_allowed, search.effort)
    for each in allowed:
        probes.prove(probes.reached(each), search.effort)
    return [least_known(probes, each) for each in allowed]


def _spread(probes: Probes, points: int) -> list[int]:
    """Budgets from the least peak that is known to that of keeping everything."""
    least, kept = least_known(probes, None).plan.peak, probes.found[0].plan.peak
    count = max(points - 1, 1)
    return sorted({least + (kept - least) * i // count for i in range(count)} | {kept})

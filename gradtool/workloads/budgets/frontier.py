"""The frontier of memory and work: the cheapest plans within several budgets."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from gradtool.workloads.budgets.probes import Probes
from gradtool.workloads.budgets.search import FEW_ROUNDS, Search, halved, least_known, probing
from gradtool.workloads.budgets.stopping import TimeIsUp, time_limit
from gradtool.workloads.names import POINTS
from gradtool.workloads.plans import Planned, Workload


def frontier(work: Workload, points: int = POINTS, search: Search | None = None) -> list[Planned]:
    """The cheapest plans within budgets spread evenly from the least peak found to the free one.

    The free one is the least at which nothing runs again; the last budget is that of keeping all.
    Budgets rise; work never rises with them.  Where a search was cut short, points are missing.
    """
    search = search or Search(probing(work))
    probes = search.probes(work, "optimal")
    try:
        with time_limit(search.seconds):
            halved(probes, None, min(probing(work), search.effort), FEW_ROUNDS)
            probes.ask(work.kept.peak - 1, search.effort)
            for budget in _spread(probes, points):
                probes.ask(budget, search.effort)
        stopped = probes.context.stop()
    except (KeyboardInterrupt, TimeIsUp):
        stopped = True
    found = [p for budget in _spread(probes, points) if (p := probes.known(budget)) is not None]
    return [replace(p, proof=p.proof and replace(p.proof, cut_short=stopped)) for p in found]


def by_slowdown(
    work: Workload, shares: list[Fraction], search: Search | None = None
) -> list[Planned]:
    """The plans of least peak that compute no more than each share of a step again."""
    search = search or Search(probing(work))
    probes = search.probes(work, "optimal")
    allowed = [int(share * probes.total) for share in shares]
    for work_allowed in sorted(allowed, reverse=True):
        halved(probes, work_allowed, search.effort)
    for each in allowed:
        probes.prove(probes.reached(each), search.effort)
    return [least_known(probes, each) for each in allowed]


def _spread(probes: Probes, points: int) -> list[int]:
    """Budgets from the least peak that is known to where nothing runs again, and to keeping all."""
    least, kept = least_known(probes, None).plan.peak, probes.found[0].plan.peak
    free = probes.reached(0)
    count = points - 1 - (free < kept)
    rising = {least + (free - least) * i // count for i in range(count + 1)} if count else {least}
    return sorted(rising | {kept})

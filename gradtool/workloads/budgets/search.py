"""Searches over budgets: the cheapest plan within one, the least peak for some work, the frontier.

Work is counted, so an answer is the same on every machine, unless a limit of time or an interrupt
cuts the search short: then it is the best so far, and says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction

from gradtool.errors import GradtoolError, OverBudget
from gradtool.planning.search.context import SearchContext, Solver
from gradtool.planning.search.planner import thorough
from gradtool.text.units import format_bytes
from gradtool.workloads.budgets.floor import raise_floor
from gradtool.workloads.budgets.limits import Budget
from gradtool.workloads.budgets.prices import FLOPS, Prices
from gradtool.workloads.budgets.probes import Probes, work_of
from gradtool.workloads.budgets.stopping import TimeIsUp, deadline, time_limit
from gradtool.workloads.plans import Planned, Workload
from gradtool.workloads.proofs import details, lines

QUICK = 0.1  # of the full effort: see `probing`
CUTS = 0.02  # so little that hardly more is done than the cuts say
_GROWTH = 4
_ROUNDS = 8
FEW_ROUNDS = 6
_LAST_ROUNDS = 2
_LARGE = 2_000  # steps of a program in which a search goes as far as it can
_DEEP = 4_000  # steps of a program in which every probe is thorough


@dataclass(frozen=True)
class Search:
    """How far to search.

    `effort` scales the counted work, `seed` decides its random part.  With `seconds`, the effort
    grows for as long as they last; `prices` are what running a step again costs, `solver` says
    whether compiled code or OR-tools search, which go further (see `SearchContext`).
    """

    effort: float = 1.0
    seed: int = 0
    seconds: float | None = None
    prices: Prices = FLOPS
    solver: Solver = "auto"

    def probes(self, work: Workload, name: str) -> Probes:
        """The planner for a training graph."""
        stop = deadline(self.seconds)
        context = SearchContext(seed=self.seed, stop=stop, solver=self.solver)
        return Probes(work, name, self.prices, context)

    def efforts(self, work: Workload) -> Iterator[float]:
        """Growing efforts: a first answer, then the full one, then more while there is time."""
        start = time.perf_counter()
        probe = min(probing(work), self.effort)
        first = probe if self.seconds is None else min(CUTS, self.effort)
        yield from sorted({first, probe, self.effort})
        effort = self.effort
        while self.seconds and (time.perf_counter() - start) * (_GROWTH + 1) < self.seconds:
            effort *= _GROWTH
            yield effort


def within(
    work: Workload, budget: Budget, search: Search | None = None, name: str = "optimal"
) -> Planned:
    """The plan within a budget that computes least again; of the least budget, the least peak.

    Raises:
        GradtoolError: no such plan was found, with what can be reached; or time ended first.
    """
    search = search or Search()
    probes, arena = search.probes(work, name), budget.arena(work)
    if arena is None:
        found = _least_peak(probes, None, search)
    elif (best := _refined(probes, arena, search)) is not None:
        found = best
    else:
        raise _unreachable(probes, arena, budget.state(work), search)
    return replace(found, notes=_said(found, budget, work), details=details(found))


def at_most(
    work: Workload,
    share: Fraction | float | None,
    search: Search | None = None,
    *,
    name: str = "optimal",
    optimizer: str = "none",
) -> Planned:
    """The plan of least peak that computes no more than a share of one step again.

    Without a share, no more than the forward pass.
    """
    search = search or Search()
    probes = search.probes(work, name)
    forward = probes.prices.forward(work.program)
    allowed = forward if share is None else int(share * probes.total)
    found = _least_peak(probes, allowed, search)
    said = _said(found, Budget(optimizer=optimizer), work)
    return replace(found, notes=said, details=details(found))


def one_forward(work: Workload, name: str = "optimal", effort: float = QUICK) -> Planned:
    """The plan of least peak that computes no more again than one forward pass is."""
    probes = Search().probes(work, name)
    allowed = probes.prices.forward(work.program)
    rounds = int(modest(work, modest(work, FEW_ROUNDS)))  # both the number and its effort shrink
    found = halved(probes, allowed, modest(work, effort), rounds)
    return replace(found, notes=lines(found), details=details(found))


def probing(work: Workload) -> float:
    """The effort of a first answer and of every probe of a search over budgets.

    A tenth of the full one, or what a thorough search takes; large programs have to do without.
    """
    steps = len(work.program.steps)
    return max(QUICK, thorough(steps)) if steps <= _DEEP else QUICK


def modest(work: Workload, effort: float = QUICK) -> float:
    """An effort, less in a large program: a schedule of more steps is more work to weigh."""
    return effort * min(1.0, _LARGE / max(len(work.program.steps), 1))


def _refined(probes: Probes, arena: int, search: Search) -> Planned | None:
    """The best answer of all efforts, or of those that time and the user allowed."""
    stopped = search.seconds is not None
    try:
        with time_limit(search.seconds):
            if search.seconds is not None:
                probes.cook()
            for effort in search.efforts(probes.work):
                best = probes.ask(arena, effort)
                if best is not None and _is_optimal(best):
                    return best
            probes.cook()
    except (KeyboardInterrupt, TimeIsUp) as stop:
        stopped = True
        if probes.known(arena) is None:
            raise _ended(stop) from stop
    found = probes.known(arena)
    if found is None or not stopped or _is_optimal(found):
        return found
    return _cut_short(found)


def _least_peak(probes: Probes, allowed: int | None, search: Search) -> Planned:
    """The plan of least peak of no more work than allowed: a quick search, then a full one."""
    stopped = False
    try:
        with time_limit(search.seconds):
            probe = min(probing(probes.work), search.effort)
            halved(probes, allowed, probe)
            if search.effort > probe:
                halved(probes, allowed, search.effort, _LAST_ROUNDS)
    except (KeyboardInterrupt, TimeIsUp):
        stopped = True
    found = least_known(probes, allowed)
    if not (stopped or probes.context.stop()) or (_is_optimal(found) and _is_least(found)):
        return found
    return _cut_short(found)


def halved(probes: Probes, allowed: int | None, effort: float, rounds: int = _ROUNDS) -> Planned:
    """The plan of least peak of no more work than allowed, after halving the range of budgets."""
    probes.cook()
    raise_floor(probes, allowed, effort)
    low = max(probes.least_of(allowed) - 1, probes.missed(allowed, effort))
    for _ in range(rounds):
        high = probes.reached(allowed)
        if high - low <= probes.resolution:
            break
        middle = (low + high) // 2
        probes.ask(middle, effort)
        if probes.reached(allowed) > middle:
            low = middle
        low = max(low, probes.least_of(allowed) - 1)
    probes.ask(probes.reached(allowed), effort)
    return least_known(probes, allowed)


def least_known(probes: Probes, allowed: int | None) -> Planned:
    """Of the plans known of no more work than allowed, the one of least peak, then least work."""
    fits = [p for p in probes.found if allowed is None or work_of(p) <= allowed]
    best = min(fits, key=lambda p: (p.plan.peak, work_of(p)))
    best = probes.known(best.plan.peak) or best
    least = min(probes.least_of(allowed), best.plan.peak)
    return replace(best, proof=best.proof and replace(best.proof, least=least, allowed=allowed))


def _is_optimal(found: Planned) -> bool:
    """Whether a plan is proven to do the least work: then more time finds no better one."""
    return found.proof is not None and not found.proof.gap


def _is_least(found: Planned) -> bool:
    """Whether a plan is proven to take the least bytes that the work allowed can do with."""
    return found.proof is not None and found.plan.peak <= found.proof.least


def _cut_short(found: Planned) -> Planned:
    return replace(found, proof=found.proof and replace(found.proof, cut_short=True))


def _ended(stop: BaseException) -> BaseException:
    """What to raise where the search ended without any plan."""
    if isinstance(stop, KeyboardInterrupt):
        return stop
    return GradtoolError("no plan was found within --time-limit: give more time")


def _unreachable(probes: Probes, arena: int, state: int, search: Search) -> OverBudget:
    """What can be reached instead of a budget, and below what nothing can."""
    with suppress(TimeIsUp), time_limit(search.seconds):
        halved(probes, None, min(probing(probes.work), search.effort))
    reached = least_known(probes, None).plan.peak + state
    least = probes.least_of(None) + state
    beside = f" (optimizer state of {format_bytes(state)} included)" if state else ""
    head = f"{format_bytes(max(arena + state, 0))} cannot be reached{beside}"
    if arena >= probes.least_of(None):
        head = f"no plan was found within {format_bytes(arena + state)}{beside}"
    if reached == least:
        said = f"{head}: the smallest budget is {reached} bytes, which is proven"
    else:
        said = (
            f"{head}: the smallest budget known to suffice is {format_bytes(reached)}"
            f" ({reached} bytes), and below {format_bytes(least)} there is none, which is proven"
        )
    proven = arena < probes.least_of(None)
    return OverBudget(max(arena + state, 0), reached, least, proven=proven, said=said)


def _said(found: Planned, budget: Budget, work: Workload) -> tuple[str, ...]:
    """What people are told of a plan within a budget."""
    state = budget.state(work)
    whole = []
    if state:
        whole.append(
            f"with the state of {budget.optimizer}: {format_bytes(found.plan.peak + state)} "
            f"({format_bytes(state)} of state)"
        )
    return (*found.notes, *lines(found), *whole)

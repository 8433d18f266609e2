"""The cheapest plan within a budget, and the plan of least peak for some work.

Work is counted, so an answer is the same on every machine.  A limit of time deepens the search for
as long as it lasts; what an interrupt cuts short is the best so far, and says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias, cast

from gradtool.errors import OverBudget
from gradtool.planning.pareto.budget_points import most_entries
from gradtool.planning.search.context import SearchContext
from gradtool.text.units import format_bytes
from gradtool.workloads.budgets.budget_queries import Answers, work_of
from gradtool.workloads.budgets.forms import Forms
from gradtool.workloads.budgets.limits import Budget
from gradtool.workloads.budgets.prices import FLOPS, Prices
from gradtool.workloads.budgets.stopping import TimeIsUp, deadline, time_limit
from gradtool.workloads.loops import loops_of, scope, taken
from gradtool.workloads.planned import Planned
from gradtool.workloads.proofs import details, lines
from gradtool.workloads.workload import Workload

CUTS = 0.05  # of the effort: hardly more is done than the cuts say
PROOF = 0.1  # of the effort that proves a bound
PROVING = 120.0  # seconds for a thorough proof
_GROWTH = 4
_OF_FORMS = 12_000_000  # entries that the frontiers of all forms look at together
_DEEPER = "--time-limit 60s of recompute searches further"

Found: TypeAlias = Answers | Forms
Question = Callable[[Found], Planned | None]
Goal: TypeAlias = "type[LeastWork | LeastPeak]"


_ROUNDS = 4
_FINE = 256  # parts of what keeping everything takes that are told apart


def raise_floor(answers: Answers | Forms, allowed: int | None, reached: int, effort: float) -> None:
    """Halve the range between an infeasible budget and a feasible one of so much work.

    Each budget on the way is asked what work it takes at least (bound c).
    """
    low, high = answers.known.least_of(allowed), reached
    for _ in range(_ROUNDS):
        if high - low <= answers.kept.peak // _FINE:
            break
        middle = (low + high) // 2
        answers.prove(middle, effort, allowed)
        least = answers.known.least_of(allowed)
        low, high = (least, high) if least > middle else (low, middle)


@dataclass(frozen=True)
class Search:
    """How far to search.

    `effort` scales the counted work, `seed` decides its random part.  With `seconds`, deeper
    frontiers are walked for as long as they last; `prices` are what running a step again costs.  To
    `prove` takes those seconds for the bound instead.
    """

    effort: float = 1.0
    seed: int = 0
    seconds: float | None = None
    prices: Prices = FLOPS
    prove: bool = False

    def answers(self, work: Workload) -> Found:
        """The frontiers of a training graph: the same ones whoever asks."""
        key = Answers, self.prices, self.seed, self.effort
        if key not in work.memo:
            context = SearchContext(effort=self.effort, seed=self.seed)
            work.memo[key] = self._of_forms(work, context)
        return cast("Found", work.memo[key])

    def _of_forms(self, work: Workload, context: SearchContext) -> Found:
        """The answers of a graph, or of the priced forms of its loops."""
        first = Answers(work, self.prices, context)
        forms = loops_of(work).forms if self.prices == FLOPS else ()
        if not forms:
            return first
        asked = sum(most_entries(len(each.program.steps)) for each in forms)
        share = min(_OF_FORMS / max(asked, 1), 1.0)
        each_of = replace(context, effort=context.effort * share)
        return Forms([first, *(Answers(f, self.prices, each_of) for f in forms)], share)

    def deeper(self, work: Workload) -> Iterator[tuple[Found, float]]:
        """Frontiers of growing effort and the seconds left, while another one has time."""
        start, effort = time.perf_counter(), self.effort
        while (gone := time.perf_counter() - start) * (_GROWTH + 1) < (self.seconds or 0):
            effort, left = effort * _GROWTH, (self.seconds or 0) - gone
            context = SearchContext(effort=effort, seed=self.seed, stop=deadline(left))
            yield self._of_forms(work, context), left

    def deepest(self, work: Workload) -> Found:
        """The frontier of the most effort within the time."""
        best = self.answers(work)
        for answers, left in self.deeper(work):
            with suppress(KeyboardInterrupt, TimeIsUp), time_limit(left):
                answers.walk()
                best = answers
        return best


def within(
    work: Workload, budget: Budget, search: Search | None = None, name: str = "optimal"
) -> Planned:
    """The plan within a budget that computes least again; of the least budget, the least peak.

    Raises:
        OverBudget: no such plan was found, with what can be reached.
    """
    search, arena = search or Search(), budget.arena(work)
    if arena is None:
        found = _least_peak(work, None, search)
    else:
        asked = _asked(work, search, lambda answers: _proven_within(answers, arena), LeastWork)
        if asked is None:
            raise _unreachable(search.answers(work), arena, budget.state(work), scope(work))
        found = _settled(work, search, asked, arena)
    return _told(found, name, budget, work, search)


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
    forward = search.prices.forward(work.program)
    allowed = forward if share is None else int(share * search.prices.total(work.program))
    found = _least_peak(work, allowed, search)
    return _told(found, name, Budget(optimizer=optimizer), work, search)


def _least_peak(work: Workload, allowed: int | None, search: Search) -> Planned:
    """The plan of least peak of no more work than allowed."""

    def least(answers: Found) -> Planned:
        found = answers.at_most(allowed)
        raise_floor(answers, allowed, found.peak, PROOF)
        if work_of(found):
            answers.prove(found.peak, PROOF, work_of(found) - 1)
        return answers.at_most(allowed)

    found = _asked(work, search, least, LeastPeak)
    assert found is not None  # noqa: S101 - keeping everything is a plan
    return _settled(work, search, found, found.peak)


def _proven_within(answers: Found, arena: int) -> Planned | None:
    """The plan within a budget, after a look for what any plan must compute again."""
    found = answers.within(arena)
    if found is None or not work_of(found):
        return found
    answers.prove(arena, PROOF, work_of(found) - 1)
    return answers.within(arena)


def _asked(work: Workload, search: Search, question: Question, goal: Goal) -> Planned | None:
    """The answer of the frontier, or the best of those of deeper ones while time is left."""
    deeper = search.deeper(work)
    best = question(search.answers(work))
    if search.seconds is None or search.prove or (best is not None and goal.is_proven(best)):
        return best
    for answers, left in deeper:
        try:
            with time_limit(left):
                found = question(answers)
        except (KeyboardInterrupt, TimeIsUp):
            break
        known = (each for each in (best, found) if each is not None)
        best = min(known, key=goal.price, default=None)
        if best is not None and goal.is_proven(best):
            return best
    return best and replace(best, proof=best.proof and replace(best.proof, cut_short=True))


def _settled(work: Workload, search: Search, found: Planned, budget: int) -> Planned:
    """The plan, or a cheaper one, with what a thorough proof says of its budget, if it is asked."""
    proof = found.proof
    if not search.prove or proof is None or not proof.gap:
        return found
    settled = search.answers(work).settled(found, budget, search.seconds or PROVING)
    assert settled.proof is not None  # noqa: S101 - every answer has one
    kept = replace(settled.proof, least=proof.least, allowed=proof.allowed)
    return replace(settled, proof=kept)


class LeastWork:
    """The constraint of a budget."""

    @staticmethod
    def price(found: Planned) -> tuple[int, int]:
        """The objective of the best plan."""
        return work_of(found), found.peak

    @staticmethod
    def is_proven(found: Planned) -> bool:
        """Whether no plan within the budget does less work."""
        return found.proof is not None and not found.proof.gap


class LeastPeak:
    """The constraint of an amount of work."""

    @staticmethod
    def price(found: Planned) -> tuple[int, int]:
        """The objective of the best plan."""
        return found.peak, work_of(found)

    @staticmethod
    def is_proven(found: Planned) -> bool:
        """Whether no plan of so much work takes less, and none of that peak does less."""
        proof = found.proof
        return proof is not None and not proof.gap and found.peak <= proof.least


def _unreachable(answers: Found, arena: int, state: int, scope: Sequence[str]) -> OverBudget:
    """The nearest feasible budget, and the lower bound."""
    reached = answers.at_most(None).peak
    answers.prove(reached - 1, PROOF)
    least = answers.known.least_of(None) + state
    reached += state
    beside = f" (optimizer state of {format_bytes(state)} included)" if state else ""
    head = f"{format_bytes(max(arena + state, 0))} cannot be reached{beside}"
    if arena >= answers.known.least_of(None):
        head = f"no plan was found within {format_bytes(arena + state)}{beside}"
    if reached == least:
        said = f"{head}: the smallest budget is {reached} bytes, which is proven"
    else:
        said = (
            f"{head}: the smallest budget known to suffice is {format_bytes(reached)}"
            f" ({reached} bytes), and below {format_bytes(least)} there is none, which is proven"
        )
    said = "; ".join((said, *scope))
    proven = arena < answers.known.least_of(None)
    return OverBudget(max(arena + state, 0), reached, least, proven=proven, said=said)


def _told(found: Planned, name: str, budget: Budget, work: Workload, search: Search) -> Planned:
    """A plan under its name, with what people are told of it."""
    found = replace(found, name=name)
    state = budget.state(work)
    said = list(lines(found))
    if state:
        whole, of_state = format_bytes(found.peak + state), format_bytes(state)
        said.append(f"with the state of {budget.optimizer}: {whole} ({of_state} of state)")
    answers = search.answers(work)
    open_ended = found.proof is not None and found.proof.gap and search.seconds is None
    if isinstance(answers, Forms) and answers.share < 1 and open_ended:
        said.append(f"forms of loops had {answers.share:.0%} of the effort each: {_DEEPER}")
    said += [*scope(work), *taken(found)]
    return replace(found, notes=(*found.notes, *said), details=details(found))

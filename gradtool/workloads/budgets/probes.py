"""Plans of one training graph within several budgets: each answer serves the next question."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from gradtool.errors import OverBudget
from gradtool.planning.recompute.mirror import decide
from gradtool.planning.recompute.mirrored import mirrored
from gradtool.planning.recompute.policy import POLICIES
from gradtool.planning.recompute.segment_search import best_segments, sqrt_segments
from gradtool.planning.schedule import Schedule
from gradtool.planning.search.certificate import certificates
from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.cost_model import CostModel, Weighed
from gradtool.planning.search.planner import cheapest
from gradtool.planning.search.proof import Proof
from gradtool.planning.search.work_bound import least_budget
from gradtool.workloads.budgets.prices import FLOPS, Prices
from gradtool.workloads.plans import Planned, Workload, planned

_PACKINGS = 4  # times that a budget is lowered by what packing adds to the load
_FINE = 256  # parts of the range of budgets that are told apart
_ORDERED = 4_000  # steps of a program whose order is worth a search


@dataclass(frozen=True)
class Bound:
    """Work that every plan of so many bytes or fewer runs again, and what proves it."""

    budget: int
    work: int
    how: str


class Probes:
    """The planner asked about one training graph, its answers packed into arenas.

    `name` is that of the plans; `found` are all plans so far, what keeps everything first, and
    `bounds` what was proven on the way.  Of the context, costs are those of `prices`, and effort is
    what each question says.
    """

    def __init__(
        self,
        work: Workload,
        name: str = "optimal",
        prices: Prices = FLOPS,
        context: SearchContext = SearchContext(),  # noqa: B008 - frozen
    ) -> None:
        self.work, self.name, self.prices = work, name, prices
        self.context = replace(context, costs=prices.costs)
        self.total = prices.total(work.program)
        self.bounds: list[Bound] = []
        self._excluded = -1
        self._asked: set[tuple[int, float]] = set()
        self._proved: set[tuple[int, float]] = set()
        self._cooked = False
        steps = range(len(work.program.steps))
        self.found = [self._packed(Schedule.of(steps), "everything is kept")]

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The order in which steps first run: the file's, or one that needs less."""
        program = self.work.program
        given = tuple(range(len(program.steps)))
        if len(given) > _ORDERED:
            return given
        ordered = self.work.ordered
        return ordered.order if ordered.peak < self.work.kept.peak_live else given

    @cached_property
    def least(self) -> int:
        """Bytes that every plan takes, whatever it computes again."""
        return least_budget(CostModel(self.work.program, self.prices.costs))

    @cached_property
    def _plain(self) -> tuple[CostModel, Weighed]:
        """The steps in their order, and what they take when none runs again."""
        cost_model = CostModel(self.work.program, self.prices.costs, self.order)
        return cost_model, cost_model.weigh({})

    def least_of(self, allowed: int | None) -> int:
        """Bytes that every plan takes that computes no more than `allowed` again."""
        least = max(self.least, self._excluded + 1)
        if allowed is None:
            return least
        return max([least, *(b.budget + 1 for b in self.bounds if b.work > allowed)])

    def missed(self, allowed: int | None, effort: float) -> int:
        """The greatest budget that was asked for in vain: all plans known there do more; or -1."""
        asked = [budget for budget, how_far in self._asked if how_far >= effort]
        return max((b for b in asked if b < self.reached(allowed)), default=-1)

    def reached(self, allowed: int | None) -> int:
        """The least peak of the plans known that compute no more than `allowed` again."""
        fits = (p for p in self.found if allowed is None or work_of(p) <= allowed)
        return min(p.plan.peak for p in fits)

    @cached_property
    def resolution(self) -> int:
        """Bytes by which budgets have to differ to be told apart."""
        return max((self.found[0].plan.peak - self.least) // _FINE, 1)

    def prove(self, budget: int, effort: float) -> None:
        """Learn what work every plan within a budget does, without a search for one."""
        if (budget, effort) in self._proved:
            return
        self._proved.add((budget, effort))
        for certificate in certificates(self._plain[0], budget, self._plain[1], effort):
            if certificate is None:
                self._excluded = max(self._excluded, budget)
            else:
                self.bounds.append(Bound(budget, certificate.bound, certificate.how))

    def ask(self, budget: int, effort: float) -> Planned | None:
        """The cheapest plan known whose arena has no more bytes, after a search of some effort."""
        asked = (budget, effort)
        if asked not in self._asked and self.least_of(None) <= budget < self.found[0].plan.peak:
            self._search(budget, effort)
            self._asked.add(asked)
        return self.known(budget)

    def known(self, budget: int) -> Planned | None:
        """The cheapest plan known within a budget, with the strongest bound of that budget."""
        fits = [p for p in self.found if p.plan.peak <= budget]
        best = min(fits, key=_price, default=None)
        if best is None or best.proof is None:
            return best
        strongest = max(
            (b for b in self.bounds if b.budget >= budget), key=lambda b: b.work, default=None
        )
        proof = replace(best.proof, budget=budget, least=self.least_of(None))
        if strongest is not None and proof.extra:
            proof = replace(
                proof, bound=min(strongest.work, proof.extra), which_bound=strongest.how
            )
        return replace(best, proof=proof)

    def _search(self, budget: int, effort: float) -> None:
        """Ask the planner; where packing takes more than the load, for less."""
        program, target = self.work.program, budget
        for attempt in range(_PACKINGS):
            try:
                context = replace(self.context, effort=effort)
                answer = cheapest(program, target, context, order=self.order)
            except OverBudget as over:
                self._learn(over, target)
                if not attempt:
                    self.cook()
                return
            if not attempt:
                self.bounds.append(Bound(budget, answer.bound, answer.which_bound))
            found = self._packed(answer.schedule, answer.how)
            self.found.append(found)
            excess = found.plan.peak - budget
            if excess <= 0:
                return
            target = min(target, found.plan.peak_live) - excess

    def _learn(self, over: OverBudget, target: int) -> None:
        """What a search in vain leaves: a proof that nothing fits, or a plan of some more bytes."""
        if over.proven:
            self._excluded = max(self._excluded, target)
        schedule = Schedule.of(over.order)
        extra = self._extra(schedule)
        if over.order and not any(p.plan.peak <= over.reached and work_of(p) <= extra
                                  for p in self.found):  # fmt: skip
            self.found.append(self._packed(schedule, "search for the least peak"))

    def cook(self) -> None:
        """Add what simple recipes give, once: they may find more where the planner finds little."""
        if not self._cooked:
            self._cooked = True
            self.found += self._recipes()

    def _recipes(self) -> Iterator[Planned]:
        work, program = self.work, self.work.program
        yield from self._priced("sqrt segments", sqrt_segments(program).outcome.schedule)
        if len(program.steps) <= _ORDERED:
            yield from self._priced("segments", best_segments(program).outcome.schedule)
            decision = decide(work.nodes, POLICIES["mirror"])
            yield from self._priced("mirror", mirrored(program, decision).outcome.schedule)

    def _priced(self, how: str, schedule: Schedule) -> Iterator[Planned]:
        """The plan of a schedule, unless a step of unknown cost runs again."""
        costs = self.prices.of(self.work.program)
        if all(costs[s] is not None for s in schedule.recomputed):
            yield self._packed(schedule, how)

    def _packed(self, schedule: Schedule, how: str) -> Planned:
        """The plan of a schedule, its arena packed; nothing is proven of it yet."""
        found = planned(self.work, self.name, schedule)
        extra = self._extra(schedule)
        which = "none" if extra else "nothing runs again"
        proof = Proof(found.plan.peak, 0, extra, 0, self.total, which, how, self.prices.unit)
        return replace(found, proof=proof)

    def _extra(self, schedule: Schedule) -> int:
        """What a schedule computes again."""
        costs = self.prices.of(self.work.program)
        return sum(costs[s] or 0 for s in schedule.recomputed)


def work_of(found: Planned) -> int:
    """What a plan computes again."""
    return found.proof.extra if found.proof else 0


def _price(found: Planned) -> tuple[int, int]:
    return work_of(found), found.plan.peak

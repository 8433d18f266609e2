"""Every question about the memory of one training graph, answered from one frontier of budgets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from gradtool.planning.pareto import requirements
from gradtool.planning.pareto.budget_points import BudgetPoints
from gradtool.planning.pareto.frontier import Frontier
from gradtool.planning.pareto.walk import State
from gradtool.planning.recompute.mirrored import mirrored
from gradtool.planning.recompute.policy import POLICIES
from gradtool.planning.recompute.segment_search import best_segments, segment_schedules
from gradtool.planning.schedule import Schedule
from gradtool.planning.search.certificate import certificates
from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.proof import Proof
from gradtool.planning.search.prove import rounds
from gradtool.planning.search.work_bound import least_budget
from gradtool.workloads.budgets.prices import FLOPS, Prices
from gradtool.workloads.groups import decided
from gradtool.workloads.planned import Planned
from gradtool.workloads.plans import planned
from gradtool.workloads.workload import Workload

_ORDERED = 4_000  # steps of a program whose order is worth a search


class Answers:
    """The plans of one training graph for any budget and any amount of work.

    `prices` are what running a step again costs.  Budgets are bytes of a packed arena; a schedule
    that needs more of them than are alive is passed over for one that does not.  `known` is what
    was proven on the way.
    """

    def __init__(
        self,
        work: Workload,
        prices: Prices = FLOPS,
        context: SearchContext = SearchContext(),  # noqa: B008 - frozen
    ) -> None:
        self.work, self.prices = work, prices
        self.context = replace(context, costs=prices.costs)
        self.total = prices.total(work.program)
        self._packed: dict[tuple[int, ...], Planned] = {}

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The order in which steps first run: the file's, or one that needs less."""
        given = tuple(range(len(self.work.program.steps)))
        if len(given) > _ORDERED:
            return given
        ordered = self.work.ordered
        return ordered.order if ordered.peak < self.work.kept.peak_live else given

    @cached_property
    def known(self) -> Known:
        """Proven bounds of all plans."""
        return Known(CostModel(self.work.program, self.prices.costs, self.order))

    @cached_property
    def frontier(self) -> Frontier:
        """The schedules at all budgets, which simple recipes are among.

        Raises:
            DeviceError: there is no native library.
        """
        requirements.require()
        place = {step: p for p, step in enumerate(self.order)}
        recipes = [[place[s] for s in recipe.order] for recipe in self._recipes()]
        model = self.known.work
        runnable = [places for places in recipes if model.runs(places)]
        points = BudgetPoints(model, self.context, runnable, self.work.listener.point)
        return Frontier(points, self._size)

    @cached_property
    def kept(self) -> Planned:
        """The plan that keeps everything."""
        return self._plan(range(len(self.work.program.steps)), "everything is kept")

    def within(self, arena: int) -> Planned | None:
        """The plan within a budget that computes least again; None if none was found."""
        if self.kept.peak <= arena:
            return self.proven(self.kept, arena)
        if arena < self.known.least_of(None):
            return None
        state = self.frontier.within(arena)
        return None if state is None else self.proven(self._planned(state), arena)

    def at_most(self, allowed: int | None) -> Planned:
        """The plan of least peak that computes no more than `allowed` again, whatever if None."""
        most = max(s.extra for s in self.frontier.points.states)
        found = self._planned(self.frontier.at_most(most if allowed is None else allowed))
        if self.kept.peak <= found.peak:
            found = self.kept
        least = min(self.known.least_of(allowed), found.peak)
        proven = self.proven(found, found.peak)
        assert proven.proof is not None  # noqa: S101 - see `_plan`
        return replace(proven, proof=replace(proven.proof, least=least, allowed=allowed))

    def walk(self) -> None:
        """Walk the frontier, if it was not."""
        self.frontier.points.states  # noqa: B018 - is computed now

    def curve(self) -> list[Planned]:
        """Plans of falling peak and rising work, none of which another one beats."""
        found = [self.kept]
        for state in sorted(self.frontier.points.states, key=lambda s: (s.extra, s.peak)):
            if state.peak < found[-1].peak and self._size(state) < found[-1].peak:
                found.append(self._planned(state))
        return found

    def prove(self, budget: int, effort: float, enough: int | None = None) -> None:
        """Learn the least recomputation within a budget, or a bound above `enough`."""
        if budget < self.kept.peak:
            self.known.prove(budget, effort, enough)

    def settled(self, found: Planned, budget: int, seconds: float) -> Planned:
        """The plan or a cheaper one, with the bound of a budget that some seconds can prove."""
        place = {step: p for p, step in enumerate(self.order)}
        places = [place[s] for s in found.schedule.order]
        said = rounds(self.known.work, budget, places, seconds, self.work.listener.point)
        with suppress(KeyboardInterrupt):
            for each in said:
                self.known.learn(budget, each.bound, each.how)
                if each.found is not None:
                    steps = [self.order[p] for p in each.found]
                    other = self._plan(steps, "integer programme")
                    if other.peak <= budget:
                        found = min(found, other, key=work_of)
        return self.proven(found, budget)

    def proven(self, found: Planned, budget: int) -> Planned:
        """A plan with the strongest bound that is known of a budget."""
        assert found.proof is not None  # noqa: S101 - see `_plan`
        proof = replace(found.proof, budget=budget, least=self.known.least_of(None))
        strongest = self.known.strongest(budget)
        if strongest is not None and proof.extra:
            work = min(strongest.work, proof.extra)
            proof = replace(proof, bound=work, which_bound=strongest.how)
        return replace(found, proof=proof)

    def _recipes(self) -> Iterator[Schedule]:
        """Schedules that the frontier begins with."""
        work, program = self.work, self.work.program
        yield from segment_schedules(program)
        if len(program.steps) <= _ORDERED:
            yield best_segments(program).outcome.schedule
            decision = decided(work, POLICIES["mirror"])
            yield mirrored(program, decision).outcome.schedule

    def _size(self, state: State) -> int:
        """The bytes of the arena of a schedule."""
        return self._planned(state).peak

    def _planned(self, state: State) -> Planned:
        how = "the search" if state.extra else "the order"
        return self._plan([self.order[p] for p in state.places], how)

    def _plan(self, steps: Sequence[int], how: str) -> Planned:
        """The plan of a schedule, its arena packed; nothing is proven of it yet."""
        key = tuple(steps)
        if key not in self._packed:
            schedule = Schedule.of(key)
            found = planned(self.work, "optimal", schedule)
            costs = self.prices.of(self.work.program)
            extra = sum(costs[s] or 0 for s in schedule.recomputed)
            which = "none" if extra else "nothing runs again"
            proof = Proof(found.peak, 0, extra, 0, self.total, which, how, self.prices.unit)
            self._packed[key] = replace(found, proof=proof)
        return self._packed[key]


def work_of(found: Planned) -> int:
    """The recomputation of a plan."""
    return found.proof.extra if found.proof else 0


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

"""The options of a recompute: one goal, and how far to search for it."""
# ruff: noqa: RUF009 - `option` makes a field

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gradtool.errors import UsageError
from gradtool.graph.optimizers import OPTIMIZERS, UPDATING
from gradtool.text.words import suggest
from gradtool.workloads.names import PLANS, SEARCHED, STRATEGIES, current
from gradtool.workloads.options import option

if TYPE_CHECKING:
    from fractions import Fraction

    from gradtool.workloads.budgets import prices
    from gradtool.workloads.budgets.search import Search
    from gradtool.workloads.plan_files import PlanFile
    from gradtool.workloads.plans import Strategy
    from gradtool.workloads.workload import Workload


@dataclass(frozen=True)
class RecomputeOptions:
    """One of a strategy, checkpoints, a budget, a slowdown and a plan in a file.

    A budget and a slowdown may name one of the strategies `SEARCHED` as well.  `max_slowdown` is a
    share of one step, or text as in `20%`; `cost` is `flops`, `time` or a file of times.
    """

    strategy: str | None = option(
        "plan", None, "What to compute again; reorder: only the order of the steps changes; "
        "min-cut, optimal: what saves most for the work, by a quick or a thorough search.",
        choices=STRATEGIES, group="Plan")  # fmt: skip
    checkpoints: Sequence[str] | None = option(
        "texts", None, "Keep these values only, and compute again what lies between them.",
        metavar="NAMES|@FILE", group="Plan")  # fmt: skip
    budget: str | int | None = option(
        "text", None, "Fit into this much memory, all that a step needs counted: 8GiB, 60% of "
        "what keeping everything takes, or as little as can be reached.",
        metavar="SIZE|%|min", group="Plan")  # fmt: skip
    max_slowdown: str | float | Fraction | None = option(
        "text", None, "Take as little memory as this much extra work allows, as in 20%.",
        metavar="%", group="Plan")  # fmt: skip
    plan: str | os.PathLike[str] | PlanFile | None = option(
        "text", None, "Follow the plan in a file.", metavar="FILE.json", group="Plan"
    )
    optimizer: str = option(
        "choice", "none", "Update the parameters in place of returning their gradients, as grad "
        f"does ({', '.join(UPDATING)}); of a model that holds gradients, count this optimizer's "
        "state as well.", choices=OPTIMIZERS, metavar="NAME", group="Optimizer")  # fmt: skip
    cost: str = option(
        "text", "flops", "What extra work is: FLOPs, time measured now on the CPU, or the times "
        "in a file of gradtool run --profile.", metavar="flops|time|FILE",
        group="Plan")  # fmt: skip
    seed: int = option("whole", 0, "The seed of the search.", least=0, group="Plan")
    time_limit: float | None = option(
        "seconds", None, "Search harder, until the command has taken this long: reading and "
        "writing count, and leave a tenth of it at least.", metavar="30s",
        group="Plan")  # fmt: skip
    prove: bool = option(
        "flag", False, "Prove how little work any plan could compute again, and look for a plan of "
        "that; for two minutes at most, or until --time-limit.", group="Plan")  # fmt: skip

    def plans(self) -> Strategy:
        """How to plan a training graph.

        Raises:
            UsageError: nothing is asked for, or two things are; a name, a size, a percentage or a
                file cannot be used.
            DeviceError: a plan is to be searched for, and there is no native library.
        """
        self._check()
        if self.plan is not None:
            from gradtool.workloads import plan_files

            given = self.plan
            file = given if isinstance(given, plan_files.PlanFile) else plan_files.load(given)
            return partial(plan_files.planned_by, file=file)
        from gradtool.workloads import strategies

        if self.checkpoints is not None:
            return partial(strategies.checkpoints, names=self.checkpoints)
        name = current(self.strategy or "optimal")
        return self._searching(name) if name in SEARCHED else strategies.STRATEGIES[name]

    def _searching(self, name: str) -> Strategy:
        from gradtool.planning.pareto import requirements
        from gradtool.workloads.budgets.limits import Budget
        from gradtool.workloads.budgets.search import at_most, within

        search, share = self.search(), self._share()
        budget = Budget.of("min" if self.budget is None else self.budget, self.optimizer)
        requirements.require()
        if self.budget is not None:
            return lambda work: within(work, budget, search(work), name)
        return lambda work: at_most(work, share, search(work), name=name, optimizer=self.optimizer)

    def search(self) -> _Searching:
        """How far to search in a training graph, which may have to be timed first.

        Raises:
            UsageError: a file of times cannot be read.
        """
        from gradtool.workloads.budgets import prices

        return _Searching(self, prices.named(self.cost))

    def _share(self) -> Fraction | None:
        from fractions import Fraction

        from gradtool.workloads.budgets.limits import parse_percent

        given = self.max_slowdown
        if given is None or isinstance(given, str):
            return None if given is None else parse_percent(given)
        if not 0 <= given < 1e9:
            raise UsageError(f"max_slowdown {given} is no share of a step: write 0.2, or '20%'")
        return Fraction(given)

    def _check(self) -> None:
        goals = {
            "checkpoints": self.checkpoints is not None,
            "a budget": self.budget is not None,
            "a slowdown": self.max_slowdown is not None,
            "a plan": self.plan is not None,
        }
        given = [name for name, is_given in goals.items() if is_given]
        if self.strategy is not None:
            if current(self.strategy) not in PLANS:
                hint = suggest(self.strategy, PLANS)
                raise UsageError(
                    f"no strategy {self.strategy!r}{hint}; there are {', '.join(PLANS)}"
                )
            if not (self.strategy in SEARCHED and given in (["a budget"], ["a slowdown"])):
                given.insert(0, f"the strategy {self.strategy}")
        if not given:
            raise UsageError(
                "say what to compute again: a strategy, checkpoints, a budget, a slowdown or a plan"
            )
        if len(given) > 1:
            both = f"{given[0]} cannot be combined with {given[1]}"
            raise UsageError(f"say what to compute again by one thing: {both}")
        if given[0] in ("a budget", "a slowdown") or self.strategy in SEARCHED:
            return
        for name, why in _SEARCHING.items():
            if getattr(self, name) != getattr(RecomputeOptions, name):
                raise UsageError(f"{name} changes nothing of {given[0]}: {why}")


_SEARCH = "it is of a budget, a slowdown, min-cut and optimal"
_SEARCHING: Mapping[str, str] = {
    "cost": _SEARCH, "seed": _SEARCH, "time_limit": _SEARCH, "prove": _SEARCH,
    "optimizer": "the graph holds its gradients",
}  # fmt: skip


@dataclass(frozen=True)
class _Searching:
    """The search for a training graph, at the prices that its steps have."""

    asked: RecomputeOptions
    prices: prices.Named

    def __call__(self, work: Workload) -> Search:
        from gradtool.workloads.budgets.search import CUTS, Search

        asked, effort = self.asked, CUTS if self.asked.strategy == "min-cut" else 1.0
        return Search(effort, asked.seed, asked.time_limit, self.prices(work), asked.prove)

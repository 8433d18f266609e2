"""What is to be computed again, as the arguments of `recompute` say it, and the plan that does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import get_args

from gradtool import plan_files, strategies
from gradtool.budgets import prices
from gradtool.budgets.limits import Budget, parse_percent
from gradtool.budgets.search import CUTS, Search, at_most, within
from gradtool.errors import UsageError
from gradtool.planning.polish.finish import require
from gradtool.planning.polish.seeds import Solver
from gradtool.plans import Strategy, Workload
from gradtool.text import suggest

SEARCHED = ("min-cut", "optimal")
SOLVERS: tuple[Solver, ...] = get_args(Solver)


@dataclass(frozen=True)
class Asked:
    """One of a strategy, checkpoints, a budget, a slowdown and a plan in a file.

    A budget and a slowdown may name one of the strategies `SEARCHED` as well.  `max_slowdown` is a
    share of one step, or text as in `20%`; `cost` is `flops`, `time` or a file of times.
    """

    strategy: str | None = None
    checkpoints: Sequence[str] | None = None
    budget: str | int | None = None
    max_slowdown: str | float | Fraction | None = None
    plan: str | os.PathLike[str] | None = None
    optimizer: str = "none"
    cost: str = "flops"
    seed: int = 0
    time_limit: float | None = None
    solver: Solver = "auto"

    def plans(self) -> Strategy:
        """How to plan a training graph.

        Raises:
            UsageError: nothing is asked for, or two things are; a name, a size, a percentage or a
                file cannot be used.
        """
        self._check()
        if self.solver not in SOLVERS:
            raise UsageError(f"no solver {self.solver!r}; there are {', '.join(SOLVERS)}")
        if self.plan is not None:
            return partial(plan_files.planned_by, file=plan_files.load(self.plan))
        if self.checkpoints is not None:
            return partial(strategies.checkpoints, names=self.checkpoints)
        name = self.strategy or "optimal"
        if name not in SEARCHED:
            return strategies.STRATEGIES[name]
        search = self.search()
        budget = Budget.of("min" if self.budget is None else self.budget, self.optimizer)
        if self.budget is not None:
            return lambda work: within(work, budget, search(work), name)
        share = self._share()
        return lambda work: at_most(work, share, search(work), name=name, optimizer=self.optimizer)

    def search(self) -> _Searching:
        """How far to search in a training graph, which may have to be timed first.

        Raises:
            UsageError: a file of times cannot be read.
        """
        return _Searching(self, prices.named(self.cost))

    def _share(self) -> Fraction | None:
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
            if self.strategy not in strategies.STRATEGIES:
                hint = suggest(self.strategy, strategies.STRATEGIES)
                listed = ", ".join(strategies.STRATEGIES)
                raise UsageError(f"no strategy {self.strategy!r}{hint}; there are {listed}")
            if not (self.strategy in SEARCHED and given in (["a budget"], ["a slowdown"])):
                given.insert(0, f"the strategy {self.strategy}")
        if not given:
            raise UsageError(
                "say what to compute again: a strategy, checkpoints, a budget, a slowdown or a plan"
            )
        if len(given) > 1:
            both = f"{given[0]} and {given[1]} do not go together"
            raise UsageError(f"say what to compute again by one thing: {both}")


@dataclass(frozen=True)
class _Searching:
    """The search for a training graph, at the prices that its steps have.

    Raises, when it is called:
        GradtoolError: the solver is not installed.
    """

    asked: Asked
    prices: prices.Named

    def __call__(self, work: Workload) -> Search:
        require(self.asked.solver)
        effort = CUTS if self.asked.strategy == "min-cut" else 1.0
        asked = self.asked
        return Search(effort, asked.seed, asked.time_limit, self.prices(work), asked.solver)

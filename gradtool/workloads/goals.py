"""What `recompute` is to reach, as objects: memory, extra work, checkpoints, a known plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradtool.arguments import hold
from gradtool.errors import UsageError
from gradtool.workloads.options import RecomputeOptions
from gradtool.workloads.plan_files import PlanFile


@dataclass(frozen=True)
class Budget:
    """The memory that a step may take, for the least extra work.

    In bytes, as `8GiB`, as a share (`60%`) of what keeping everything takes, or as little as can be
    reached (`min`).
    """

    size: str | int

    def __post_init__(self) -> None:
        hold("Budget", vars(self), Budget)


@dataclass(frozen=True)
class Slowdown:
    """The extra work that a step may do, for the least memory: a share of one step, or `20%`."""

    share: str | float

    def __post_init__(self) -> None:
        hold("Slowdown", vars(self), Slowdown)


@dataclass(frozen=True)
class Checkpoints:
    """The values, by name, between which everything is computed again."""

    names: Sequence[str]

    def __post_init__(self) -> None:
        hold("Checkpoints", vars(self), Checkpoints)


Goal = str | Budget | Slowdown | Checkpoints | PlanFile


def options_of(goal: Goal, strategy: str | None = None, **options: Any) -> RecomputeOptions:
    """The options that ask for a goal, which may be the name of a strategy."""
    if isinstance(goal, str):
        if strategy is not None:
            raise UsageError(f"the strategies {goal!r} and {strategy!r} do not go together")
        return RecomputeOptions(strategy=goal, **options)
    if isinstance(goal, Budget):
        return RecomputeOptions(strategy=strategy, budget=goal.size, **options)
    if isinstance(goal, Slowdown):
        return RecomputeOptions(strategy=strategy, max_slowdown=goal.share, **options)
    if isinstance(goal, Checkpoints):
        return RecomputeOptions(strategy=strategy, checkpoints=goal.names, **options)
    return RecomputeOptions(strategy=strategy, plan=goal, **options)

"""Goals of `recompute`, as objects: memory, extra work, checkpoints, a known plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradtool.arguments import hold
from gradtool.errors import UsageError
from gradtool.workloads.plan_files import PlanFile
from gradtool.workloads.recompute_options import RecomputeOptions


@dataclass(frozen=True)
class Budget:
    """The memory that a step may take, for the least extra work.

    Args:
        size: bytes, `8GiB`, a share (`60%`) of what keeping everything takes, or `min`: as little
            as can be reached.

    Raises:
        UsageError: it is of another kind.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        less = gt.recompute(training, gt.Budget("80%"), strategy="min-cut")
        less.plan.peak, less.proof.extra  # bytes, FLOPs
    """

    size: str | int

    def __post_init__(self) -> None:
        hold("Budget", vars(self), Budget)


@dataclass(frozen=True)
class Slowdown:
    """The extra work that a step may do, for the least memory.

    Args:
        share: a share of the work of one step, `0.2` or `20%`.

    Raises:
        UsageError: it is of another kind.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        gt.recompute(training, gt.Slowdown(0.2), strategy="min-cut").plan.peak  # bytes
    """

    share: str | float

    def __post_init__(self) -> None:
        hold("Slowdown", vars(self), Slowdown)


@dataclass(frozen=True)
class Checkpoints:
    """The values between which everything is computed again.

    Args:
        names: their names.

    Raises:
        UsageError: it is of another kind.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        gt.recompute(training, gt.Checkpoints(["stem.relu.out"])).plan.peak  # bytes
    """

    names: Sequence[str]

    def __post_init__(self) -> None:
        hold("Checkpoints", vars(self), Checkpoints)


Goal = str | Budget | Slowdown | Checkpoints | PlanFile


def options_of(goal: Goal, strategy: str | None = None, **options: Any) -> RecomputeOptions:
    """The options of a goal, or of the name of a strategy."""
    if isinstance(goal, str):
        if strategy is not None:
            raise UsageError(f"the strategy {goal!r} cannot be combined with {strategy!r}")
        return RecomputeOptions(strategy=goal, **options)
    if isinstance(goal, Budget):
        return RecomputeOptions(strategy=strategy, budget=goal.size, **options)
    if isinstance(goal, Slowdown):
        return RecomputeOptions(strategy=strategy, max_slowdown=goal.share, **options)
    if isinstance(goal, Checkpoints):
        return RecomputeOptions(strategy=strategy, checkpoints=goal.names, **options)
    return RecomputeOptions(strategy=strategy, plan=goal, **options)

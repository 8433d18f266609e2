"""What ranks compute together, as one rank alone has it: these calls are run, never written."""

from __future__ import annotations

from gradtool.emit.builder import Builder
from gradtool.graph.composites import composite
from gradtool.graph.known import Tensor


@composite("RanksMoments", like=(0, 1))
def ranks_moments(
    op: Builder, mean: Tensor, variance: Tensor, running_mean: Tensor, running_var: Tensor, *,
    ranks: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Mean and biased variance of the examples of all ranks, of those of each rank's own.

    What evaluation takes in their place comes with them.
    """
    return op.Identity(mean), op.Identity(variance)


@composite("RanksMean")
def ranks_mean(op: Builder, x: Tensor, *, ranks: int) -> Tensor:
    """The mean over all ranks of what each has."""
    return op.Identity(x)

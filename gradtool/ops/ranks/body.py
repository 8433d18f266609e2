"""Collectives of ranks, as one rank alone has them: these calls are run, never written."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Tensor


@composite("RanksMoments", like=(0, 1))
def ranks_moments(
    op: Builder, mean: Tensor, variance: Tensor, running_mean: Tensor, running_var: Tensor, *,
    ranks: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Mean and biased variance of the examples of all ranks, from each rank's own.

    Their replacements in evaluation come with them.
    """
    return op.Identity(mean), op.Identity(variance)


@composite("RanksMean")
def ranks_mean(op: Builder, x: Tensor, *, ranks: int) -> Tensor:
    """The mean of an array over all ranks."""
    return op.Identity(x)


def _part_shapes(
    x: Tensor, *, counts: Sequence[int], rank: int, shape: Sequence[int], ordered: int
) -> Outputs:
    return [(ir.Shape(shape), x.dtype)]


@composite("RanksPart", shapes=_part_shapes)
def ranks_part(
    op: Builder, x: Tensor, *, counts: Sequence[int], rank: int, shape: Sequence[int], ordered: int
) -> Tensor:
    """The sum over all ranks of the elements that rank `rank` has, `counts` of each in order."""
    start = sum(counts[:rank])
    own = op.Slice(op.reshape(x, [-1]), [start], [start + counts[rank]], [0])
    return op.reshape(own, shape)

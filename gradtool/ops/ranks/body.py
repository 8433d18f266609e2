"""Collectives of ranks, as one rank alone has them: these calls are run, never written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
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


def _part_shapes(x: Tensor, *, shape: Sequence[int]) -> Outputs:
    return [(ir.Shape(shape), x.dtype)]


@composite("RanksPart", shapes=_part_shapes)
def ranks_part(
    op: Builder, x: Tensor, *, counts: Sequence[int], rank: int, shape: Sequence[int], ordered: int
) -> Tensor:
    """The sum over all ranks of the elements that rank `rank` has, `counts` of each in order."""
    start = sum(counts[:rank])
    own = op.Slice(op.reshape(x, [-1]), [start], [start + counts[rank]], [0])
    return op.reshape(own, shape)


@composite("StageSend")
def stage_send(
    op: Builder, x: Tensor, before: Tensor | None = None, *, to: int, slot: int
) -> Tensor:
    """`x` on its way to the stage `to` further: it lies there until it has arrived.

    `before` went through the same slot a turn ago, and has arrived by then.
    """
    return op.Identity(x)


def _received(*, shape: Sequence[int], dtype: int) -> Outputs:
    return [(ir.Shape(shape), ir.DataType(dtype))]


@composite("StageReceive", shapes=_received)
def stage_receive(op: Builder, *, shape: Sequence[int], dtype: int, of: int, slot: int) -> Tensor:
    """The value sent by the stage `of` further; nothing but zeros where there is none."""
    zero = ir.tensor(np.zeros(1, ir.DataType(dtype).numpy()))
    return op.ConstantOfShape(list(shape), value=zero)


def _one() -> Outputs:
    return [(ir.Shape(()), ir.DataType.BOOL)]


@composite("StageGive", shapes=_one)
def stage_give(op: Builder, x: Tensor, *, to: int, slot: int) -> Tensor:
    """Whether another stage has `x`, which no step writes over: yes, when it goes on."""
    return op.constant(np.array(True))


@composite("StageSent", shapes=_one)
def stage_sent(op: Builder, *mails: Tensor) -> Tensor:
    """Whether all sent values have arrived: yes, when it goes on."""
    return op.constant(np.array(True))


def _row_shapes(own: Tensor, indices: Tensor, *cache: Tensor) -> Outputs:
    shape = [*indices.shape, *own.shape[1:]]
    return [(ir.Shape(shape), own.dtype), *((each.shape, each.dtype) for each in cache)]


@composite("RanksRows", shapes=_row_shapes, outputs=1)
def ranks_rows(
    op: Builder, own: Tensor, indices: Tensor, *cache: Tensor, table: str, bounds: Sequence[int],
    stale: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gather rows, by indices of any shape, of a table sharded over all ranks.

    Rank r has rows `bounds[r]` to `bounds[r + 1]`, behind a row that is nobody's.  A `cache` has
    rows that others have, their numbers plus one, and the steps in which they were read.
    """
    height = op.constant(bounds[-1])
    at = op.Mod(op.cast(indices, ir.DataType.INT64), height) + op.constant(1)
    return op.Gather(own, at, axis=0), *(op.Identity(each) for each in cache)


def _sum_shapes(
    rows: Tensor, slots: Tensor, sums: Tensor, taken: Tensor, totals: Tensor
) -> Outputs:
    return [(taken.shape, taken.dtype), (totals.shape, totals.dtype)]


@composite("RanksRowSums", shapes=_sum_shapes, outputs=2)
def ranks_row_sums(
    op: Builder, rows: Tensor, slots: Tensor, sums: Tensor, taken: Tensor, totals: Tensor, *,
    table: str, bounds: Sequence[int], rank: int, stale: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The sums of gradients by row, of the rows that a rank has and any rank has read.

    Of `[n]` rows with slots, as `RowSlots` has them, the gradient of row `rows[i]` is
    `sums[slots[i]]`.  The sum of row `taken[j] - 1` of a rank is `totals[j]`; where `taken` is 0
    there is none.  One rank alone has them where their rows are: each at a place of its own.
    """
    at = op.Unsqueeze(rows + op.constant(1), [1])
    found = op.Gather(totals, rows + op.constant(1), axis=0) + op.Gather(sums, slots, axis=0)
    ids = op.ScatterND(taken, at, rows + op.constant(1))
    return ids, op.ScatterND(totals, at, found)

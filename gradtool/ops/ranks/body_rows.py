"""Tables that ranks have in blocks of rows, as one rank alone has them: run, never written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Tensor


def _row_shapes(own: Tensor, indices: Tensor, *cache: Tensor, **_: Any) -> Outputs:
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
    rows: Tensor, slots: Tensor, sums: Tensor, taken: Tensor, totals: Tensor, **_: Any
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

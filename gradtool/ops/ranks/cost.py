"""Costs of the collectives of ranks."""

from __future__ import annotations

from collections.abc import Sequence

from gradtool.ops.costs import cost, free
from gradtool.ops.shared.element_counts import Results, Shaped, made, size


@cost("ai.gradtool::RanksMoments")
def ranks_moments(mean: Shaped, *, ranks: int) -> int:
    """Both means, and a difference, a square and a sum for each rank."""
    return 5 * ranks * size(mean)


@cost("ai.gradtool::RanksMean")
def ranks_mean(x: Shaped, *, ranks: int) -> int:
    """A sum over ranks, and a division."""
    return ranks * size(x)


@cost("ai.gradtool::RanksRows")
def ranks_rows(_: Shaped, indices: Shaped) -> int:
    """The indices are sorted."""
    return size(indices) * max(size(indices) - 1, 0).bit_length()


@cost("ai.gradtool::RanksRowSums")
def ranks_row_sums(_: Shaped, __: Shaped, sums: Shaped) -> int:
    """As many sums as a rank sends: others send as many together."""
    return size(sums)


@cost("ai.gradtool::RanksPart")
def ranks_part(*, out: Results, counts: Sequence[int]) -> int:
    """A sum over ranks of one's own part."""
    return (len(counts) - 1) * made(out)


free(f"ai.gradtool::{name}" for name in ("StageSend", "StageReceive", "StageGive", "StageSent"))

"""Costs of the collectives of ranks."""

from __future__ import annotations

from gradtool.ops.costs import cost, counts, free
from gradtool.ops.shared.element_counts import Shaped, made, size


@cost("ai.gradtool::RanksRows")
def ranks_rows(_: Shaped, indices: Shaped) -> int:
    """The indices are sorted."""
    return size(indices) * max(size(indices) - 1, 0).bit_length()


free(f"ai.gradtool::{name}" for name in ("StageSend", "StageReceive", "StageGive", "StageSent"))

counts({
    # Both means, and a difference, a square and a sum for each rank
    "ai.gradtool::RanksMoments": lambda mean, *, ranks: 5 * ranks * size(mean),
    # A sum over ranks, and a division
    "ai.gradtool::RanksMean": lambda x, *, ranks: ranks * size(x),
    # As many sums as a rank sends: others send as many together
    "ai.gradtool::RanksRowSums": lambda _, __, sums: size(sums),
    # A sum over ranks of one's own part
    "ai.gradtool::RanksPart": lambda *, out, counts: (len(counts) - 1) * made(out),
})  # fmt: skip

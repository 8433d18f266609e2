"""Collectives of ranks in the middle of a step: small, and in the order of ranks.

All of them run the same steps in the same order.  Where nobody said who takes part, each of them
is taken to be as this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.ranks.members import line, taking_part
from gradtool.ops.shared.types import Array, Arrays


def _exchange(own: Array, into: Array) -> None:
    """All-gather: the array of every rank, `[ranks, *shape]`, in their order."""
    group = taking_part()
    if group is None:
        np.copyto(into, own)
    else:
        group.exchange(own, into)


def _moments_work(mean: Spec, *, ranks: int) -> list[Spec]:
    return [Spec((2, *mean.shape), mean.dtype), Spec((ranks, 2, *mean.shape), mean.dtype)]


@kernel("ai.gradtool::RanksMoments", work=_moments_work)
def ranks_moments(
    xp: Any, mean: Array, variance: Array, running_mean: Array, running_var: Array, *,
    out: Arrays, work: Arrays, ranks: int,
) -> None:  # fmt: skip
    """`m = mean(m_r)` and `v = mean(v_r + (m_r - m)²)` over ranks with as many examples.

    Source: Chan, Golub and LeVeque 1983, with parts of one size.
    """
    own, found = work
    xp.copyto(own[0], mean)
    xp.copyto(own[1], variance)
    _exchange(own, found)
    means, variances = found[:, 0], found[:, 1]
    whole, spread = (
        (o if o is not None else s) for o, s in zip((*out, None)[:2], own, strict=True)
    )
    xp.mean(means, axis=0, out=whole)
    xp.subtract(means, whole, out=means)
    xp.multiply(means, means, out=means)
    xp.add(means, variances, out=means)
    xp.mean(means, axis=0, out=spread)


@kernel("ai.gradtool::RanksMean", work=lambda x, *, ranks: [Spec((ranks, *x.shape), x.dtype)])
def ranks_mean(xp: Any, x: Array, *, out: Arrays, work: Arrays, ranks: int) -> None:
    """The mean over ranks, added up in their order."""
    _exchange(x, work[0])
    xp.mean(work[0], axis=0, out=out[0])


def _part_work(x: Spec, *, counts: Sequence[int], rank: int, ordered: int) -> list[Spec]:
    """Workspace for the parts sent by other ranks, if they are added up here."""
    return [Spec((len(counts), counts[rank]), x.dtype)] if ordered or x.dtype.itemsize < 4 else []


@kernel("ai.gradtool::RanksPart", work=_part_work)
def ranks_part(
    xp: Any, x: Array, *, out: Arrays, work: Arrays, counts: Sequence[int], rank: int,
    shape: Sequence[int], ordered: int,
) -> None:  # fmt: skip
    """The sum over ranks of this one's part of an array, in the order of memory."""
    flat, own = np.ascontiguousarray(x).reshape(-1), out[0].reshape(-1)
    group = taking_part()
    if group is None:
        np.copyto(own, flat[sum(counts[:rank]) :][: counts[rank]])
    else:
        group.scatter(flat, counts, own, work[0] if work else None)


@kernel("ai.gradtool::StageSend", may_inplace=(0,), strided=True)
def stage_send(
    xp: Any, x: Array, before: Array | None = None, *, out: Arrays, to: int, slot: int
) -> None:
    """Send a copy of `x`, or `x` itself if the output is its alias."""
    (mail,) = out
    if mail.__array_interface__["data"] != x.__array_interface__["data"]:
        xp.copyto(mail, x)
    stages = line()
    if stages is not None:
        stages.send(mail, to, slot)


@kernel("ai.gradtool::StageReceive")
def stage_receive(
    xp: Any, *, out: Arrays, shape: Sequence[int], dtype: int, of: int, slot: int
) -> None:
    """The value sent by the stage `of` further, or zeros without a line of stages."""
    stages = line()
    if stages is None:
        out[0][...] = 0
    else:
        stages.receive(out[0], of, slot)


@kernel("ai.gradtool::StageGive")
def stage_give(xp: Any, x: Array, *, out: Arrays, to: int, slot: int) -> None:
    """Send values that stay as they are, and wait for their arrival."""
    stages = line()
    if stages is not None:
        stages.send(x, to, slot)
        stages.sent(to, slot)
    out[0][...] = True


@kernel("ai.gradtool::StageSent", strided=True)
def stage_sent(xp: Any, *mails: Array, out: Arrays) -> None:
    """Wait until all has arrived."""
    stages = line()
    if stages is not None:
        stages.all_sent()
    out[0][...] = True

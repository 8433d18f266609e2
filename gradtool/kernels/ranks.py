"""What ranks compute together in the middle of a step: small, and in the order of ranks.

All of them run the same steps in the same order.  Where nobody said who takes part, each of them
is taken to be as this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.kernels import kernel
from gradtool.kernels.types import Array, Arrays, Specs
from gradtool.ranks.group import Group

_GROUP: ContextVar[Group | None] = ContextVar("group", default=None)


@contextmanager
def together(group: Group) -> Iterator[None]:
    """Steps run as those of one rank of a group."""
    token = _GROUP.set(group)
    try:
        yield
    finally:
        _GROUP.reset(token)


def _exchange(own: Array, into: Array) -> None:
    """What every rank has, `[ranks, *shape]`, in their order."""
    group = _GROUP.get()
    if group is None:
        np.copyto(into, own)
    else:
        group.exchange(own, into)


def _moments_work(mean: Spec, *_rest: Spec, out: Specs, ranks: int) -> list[Spec]:
    return [Spec((2, *mean.shape), mean.dtype), Spec((ranks, 2, *mean.shape), mean.dtype)]


@kernel("ai.gradtool::RanksMoments", work=_moments_work)
def ranks_moments(
    xp: Any, mean: Array, variance: Array, running_mean: Array, running_var: Array, *,
    out: Arrays, work: Arrays, ranks: int,
) -> None:  # fmt: skip
    """`m = mean(m_r)` and `v = mean(v_r + (m_r - m)²)` over ranks that have as many examples.

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


def _mean_work(x: Spec, *, out: Specs, ranks: int) -> list[Spec]:
    return [Spec((ranks, *x.shape), x.dtype)]


@kernel("ai.gradtool::RanksMean", work=_mean_work)
def ranks_mean(xp: Any, x: Array, *, out: Arrays, work: Arrays, ranks: int) -> None:
    """The mean over ranks, added up in their order."""
    _exchange(x, work[0])
    xp.mean(work[0], axis=0, out=out[0])

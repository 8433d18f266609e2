"""Packings that place each buffer once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from gradtool.planning.packing.problem import RANKS, Numbers, Problem

FAR = 1 << 62
MOST = 600_000_000


def greedy(problem: Problem) -> Iterator[tuple[Numbers, str]]:
    """Offsets, and how they were found; what is best on training graphs comes first.

    At least two packings, and more while they look at no more than `MOST` pairs of buffers.
    """
    return islice(_greedy(problem), max(2, MOST // len(problem.size) ** 2))


def _greedy(problem: Problem) -> Iterator[tuple[Numbers, str]]:
    for keys in RANKS:
        yield skyline(problem, problem.order(keys)), f"skyline {keys}"
    first, size = problem.start, problem.size
    for name, order in (
        ("size", np.lexsort((first, -size))),
        ("first use", np.lexsort((-size, first))),
        ("area", problem.order("A")),
    ):
        yield best_fit(problem, order), f"best fit by {name}"


def skyline(problem: Problem, order: Numbers) -> Numbers:
    """Place next whichever buffer can lie lowest on those below; `order` settles ties.

    Source: the first descent of MiniMalloc's search (ASPLOS 2023), without a capacity.
    """
    start, stop, size = (c[order] for c in (problem.start, problem.stop, problem.size))
    start, stop = start.astype(np.int32), stop.astype(np.int32)  # sections are counted, not bytes
    low = np.zeros(len(order), dtype=np.int64)
    found = np.empty_like(low)
    for left in range(len(order), 0, -1):
        if 2 * left <= len(order):
            rest = low != FAR
            order, start, stop, size, low = (c[rest] for c in (order, start, stop, size, low))
        item = int(low.argmin())
        offset = int(low[item])
        top = offset + int(size[item])
        found[order[item]] = offset
        low[item] = FAR
        above = (start < stop[item]) & (stop > start[item])
        np.maximum(low, above * top, out=low)  # `where` takes longer
    return found


def best_fit(problem: Problem, order: Numbers) -> Numbers:
    """Place buffers one by one into the smallest gap that holds them.

    Source: Pisarchyk and Lee 2020 (arXiv:2001.03288), §5.2; unlike them, not only by size.
    """
    count = len(order)
    begin, end, bottom, top = (np.zeros(count, dtype=np.int64) for _ in range(4))
    found = np.empty(count, dtype=np.int64)
    for placed, item in enumerate(order.tolist()):
        start, stop, size = problem.start[item], problem.stop[item], int(problem.size[item])
        rivals = np.flatnonzero((begin[:placed] < stop) & (end[:placed] > start))
        offset = _smallest_gap(bottom[rivals], top[rivals], size)
        found[item] = offset
        slot = int(np.searchsorted(bottom[:placed], offset))
        for column, value in ((begin, start), (end, stop), (bottom, offset), (top, offset + size)):
            column[slot + 1 : placed + 1] = column[slot:placed]
            column[slot] = value
    return found


def _smallest_gap(bottom: Numbers, top: Numbers, size: int) -> int:
    """Where `size` fits most tightly between intervals sorted by `bottom`, else above them all."""
    reach = np.maximum.accumulate(np.concatenate(([0], top)))
    gaps = bottom - reach[:-1]
    fits = np.flatnonzero(gaps >= size)
    if fits.size == 0:
        return int(reach[-1])
    return int(reach[fits[np.argmin(gaps[fits])]])

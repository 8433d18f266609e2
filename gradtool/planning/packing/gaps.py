"""Buffers placed one by one into gaps, or on a skyline: the loops inside of every packing.

They run in the native library where there is one; numpy's twins below give the same offsets.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from gradtool.native import gaps, library
from gradtool.planning.packing.problem import Numbers, Problem

FAR = 1 << 62
NOTHING: Numbers = np.empty(0, dtype=np.int64)


class Rule(IntEnum):
    """The choice of a gap for a buffer; in a tight one it lies at the bottom."""

    LOWEST = 0
    TIGHTEST = 1
    HIGHEST = 2


class Filled(NamedTuple):
    """Buffers without a place, the number of attempts, and the pairs looked at."""

    left: list[int]
    tried: int
    pairs: int


def fill(
    problem: Problem,
    order: Numbers,
    found: Numbers,
    *,
    around: Numbers = NOTHING,
    capacity: int = FAR,
    most: int = FAR,
    rule: Rule = Rule.LOWEST,
) -> Filled:
    """Place buffers in an order, filling in their offsets in `found`.

    `around` are those that have a place, by offset.  It ends when more than `most` are left over.
    """
    if not library.is_available():
        return fill_by_numpy(problem, order, found, around, capacity, most, rule)
    left, counts = np.empty_like(order), np.zeros(3, dtype=np.int64)
    work = np.empty(gaps.PLACED * (len(order) + len(around)), dtype=np.int64)
    gaps.fill(
        problem.start, problem.stop, problem.size, order, around, found, left, counts, work,
        capacity=capacity, most=most, rule=rule,
    )()  # fmt: skip
    lost, pairs, tried = counts.tolist()
    return Filled(left[:lost].tolist(), tried, pairs)


def fill_by_numpy(
    problem: Problem, order: Numbers, found: Numbers, around: Numbers, capacity: int, most: int,
    rule: Rule,
) -> Filled:  # fmt: skip
    """`fill`."""
    start, stop, size = problem.start, problem.stop, problem.size
    count = len(around)
    placed = np.empty((4, count + len(order)), dtype=np.int64)
    placed[:, :count] = start[around], stop[around], found[around], found[around] + size[around]
    begin, end, bottom, top = placed
    filled = Filled([], len(order), 0)
    pairs = 0
    for tried, item in enumerate(order.tolist(), start=1):
        pairs += count
        first, last, extent = start[item], stop[item], size[item]
        (near,) = ((begin[:count] < last) & (end[:count] > first)).nonzero()
        reach, limit = np.zeros((2, len(near) + 1), dtype=np.int64)
        np.maximum.accumulate(top[near], out=reach[1:])
        limit[:-1], limit[-1] = bottom[near], capacity
        (holds,) = (limit - reach >= extent).nonzero()
        if not holds.size:
            filled.left.append(item)
            if len(filled.left) > most:
                return filled._replace(tried=tried, pairs=pairs)
            continue
        offset = found[item] = _chosen(reach, limit, holds, extent, rule)
        slot = int(bottom[:count].searchsorted(offset))
        placed[:, slot + 1 : count + 1] = placed[:, slot:count]
        placed[:, slot] = first, last, offset, offset + extent
        count += 1
    return filled._replace(pairs=pairs)


def _chosen(reach: Numbers, limit: Numbers, holds: Numbers, extent: int, rule: Rule) -> int:
    """The offset in the gap chosen for a buffer."""
    if rule is Rule.HIGHEST:
        return int(limit[holds[-1]] - extent)
    chosen = holds[0]
    if rule is Rule.TIGHTEST:
        chosen = holds[np.argmin(limit[holds] - reach[holds])]
    return int(reach[chosen])


def skyline(problem: Problem, order: Numbers) -> Numbers:
    """Place next the buffer of lowest possible offset on those below; `order` settles ties.

    Source: the first descent of MiniMalloc's search (ASPLOS 2023), without a capacity.
    """
    if not library.is_available():
        return skyline_by_numpy(problem, order)
    found = np.empty_like(order)
    work = np.empty(gaps.RESTING * len(order), dtype=np.int64)
    gaps.skyline(problem.start, problem.stop, problem.size, order, found, work)()
    return found


def skyline_by_numpy(problem: Problem, order: Numbers) -> Numbers:
    """`skyline`."""
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

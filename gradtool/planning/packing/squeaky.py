"""Packing again and again: half of the work in several ways, the other half in the best two.

The smallest buffers, a small part, are left out, and placed last: they find room anywhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from gradtool.native import library
from gradtool.native.call import Call
from gradtool.planning.packing.gaps import fill
from gradtool.planning.packing.problem import Numbers, Problem
from gradtool.planning.packing.reinsertion import Turns

PLACE = 400
MOST = 128
FEWEST = 8  # turns that a way is worth
GOING_ON = 2  # ways that do so after half of the work
_LIGHT = 500  # the part of the bound that the smallest buffers take together, at most

# The order that settles ties, and how many quarters of the way from the bound to the top the line
# is: what was best on training graphs, alone and together.
WAYS = (("TLA", 1), ("TA", 0), ("S", 1), ("LS", 1), ("TS", 2), ("TCA", 2))


def squeaky(problem: Problem, least: int, work: int) -> Numbers | None:
    """The lowest packing found before the work is spent; None if that is not enough for one.

    It ends at `least`, and after `MOST` turns.  `work` is the pairs of buffers looked at, and
    `PLACE` of them for each that is placed.
    """
    heavy, light = _by_weight(problem, least // _LIGHT)
    packed = _repeated(problem.of(heavy), least, work)
    if packed is None:
        return None
    found = np.empty_like(problem.size)
    found[heavy] = packed
    fill(problem, light, found, around=heavy[np.argsort(packed, kind="stable")])
    return found


def _by_weight(problem: Problem, most: int) -> tuple[Numbers, Numbers]:
    """The larger buffers, and the smallest, of peak at most `most`; these, largest first."""
    order = np.argsort(-problem.size, kind="stable")
    counts = range(1, len(order))  # one is left over at least
    small = bisect_right(counts, most, key=lambda count: problem.of(order[-count:]).peak_live)
    return np.sort(order[: len(order) - small]), order[len(order) - small :]


def _repeated(problem: Problem, least: int, work: int) -> Numbers | None:
    """The lowest packing of all ways."""
    count = len(problem.size)
    turns = min(work // (count * (count + PLACE)), MOST)
    ways = [Turns(problem, least, *way, most=turns) for way in WAYS[: turns // FEWEST]]
    if not ways:
        return None
    for going in (len(ways), min(GOING_ON, len(ways))):
        _go(ways[:going], turns // 2 // going)
        ways.sort(key=lambda way: max(way.lowest, least))
        if ways[0].lowest <= least:
            break
    return ways[0].best


def _go(ways: Sequence[Turns], turns: int) -> None:
    """So many turns of each way, until one of them reaches the least.

    The library packs in as many threads as it has for kernels.  Packings of a later way are ignored
    where an earlier one is there: the answer is the same.
    """
    is_native = library.is_available()
    if is_native and library.threads() > 1:
        Call.joined(way.call(turns) for way in ways).together()
        return
    for way in ways:
        if is_native:
            way.call(turns)()
        else:
            way.go_by_numpy(turns)
        if way.lowest <= way.least:
            return

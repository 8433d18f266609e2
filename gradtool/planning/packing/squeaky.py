"""Packing again and again: half of the work in several ways, the other half in the best two."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from gradtool.native import library
from gradtool.planning.packing.problem import Numbers, Problem
from gradtool.planning.packing.turns import Turns

PLACE = 400
MOST = 128
FEWEST = 8  # turns that a way is worth
GOING_ON = 2  # ways that do so after half of the work
_APART = 200_000  # pairs of buffers above which a thread for each way pays

# The order that settles ties, and how many quarters of the way from the bound to the top the line
# is: what was best on training graphs, alone and together.
WAYS = (("TLA", 1), ("TA", 0), ("S", 1), ("LS", 1), ("TS", 2), ("TCA", 2))


def squeaky(problem: Problem, least: int, work: int) -> Numbers | None:
    """The lowest packing found before the work is spent; None if that is not enough for one.

    It ends at `least`, and after `MOST` turns.  `work` is the pairs of buffers looked at, and
    `PLACE` of them for each that is placed.
    """
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
    """So many turns of each way, until one of them reaches what is least.

    The library packs in as many threads as it has for kernels.  What a later way comes upon is
    not looked at where an earlier one is there: the answer is the same.
    """
    threads = min(len(ways), library.threads_asked())
    count = len(ways[0].problem.size)
    if threads > 1 and library.is_available() and turns * count * count > _APART:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda way: way.go(turns), ways))
        return
    for way in ways:
        way.go(turns)
        if way.lowest <= way.least:
            return

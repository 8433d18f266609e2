"""Bytes of a step by itself whenever it runs, whatever the schedule."""

from __future__ import annotations

from typing import NamedTuple

from gradtool.planning.search.cost_model import CostModel


class Touched(NamedTuple):
    """Bytes while a step runs, always-live ones included, and the storages counted in them.

    Other storages count beside them where they are alive.
    """

    bytes: int
    roots: frozenset[int]


def runs_once(work: CostModel, place: int) -> bool:
    """Whether a step runs exactly once in every schedule.

    It does if it may not run again, or if all outputs are results or read by nobody: another run
    would leave nothing to read.
    """
    return not work.repeatable[place] or not work.fleeting[place]


def at_first(work: CostModel, place: int) -> Touched:
    """The bytes of a step when it runs for the first time.

    Of several outputs that pass perhaps one is read, so none is spoken of.  The first output counts
    nothing if it may lie where an input ends.
    """
    results = [r for r in work.writes[place] if r not in work.fleeting[place]]
    only = work.fleeting[place] if _is_for_one(work, place) else ()
    return _touched(work, place, [*results, *only])


def at_any(work: CostModel, place: int) -> Touched:
    """The bytes of a step in each of its runs, in which results may be there already."""
    read = work.simulator.read
    if not work.fleeting[place]:
        return at_first(work, place)
    results = [r for r in work.writes[place] if r not in read and r not in work.live_out]
    only = work.fleeting[place] if _is_for_one(work, place) else ()
    found = _touched(work, place, [*results, *only])
    return Touched(found.bytes, found.roots | set(work.writes[place]))


def _is_for_one(work: CostModel, place: int) -> bool:
    return len(work.fleeting[place]) == 1 and not work.is_result[place]


def _touched(work: CostModel, place: int, written: list[int]) -> Touched:
    simulator, target = work.simulator, work.targets[place]
    counted = [r for r in written if r != target]
    held = {*work.reads[place], *counted}
    size = simulator.fixed + simulator.work[work.order[place]] + sum(work.bytes[r] for r in held)
    return Touched(size, frozenset(held if target < 0 else held | {target}))

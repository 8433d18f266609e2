"""How little extra work a budget leaves open, and what is kept where it pinches most.

Bound c is computed at instants around the peak of the order without recompute: by cuts first, at
many instants; then, if the program is small, by the integer programme of the tightest.  Their
solutions are where the search for a plan begins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradtool.planning.mincut import Breakpoint, Instant
from gradtool.planning.rework import Drops, Rework
from gradtool.planning.stages import Stages
from gradtool.planning.work_bound import chain, instants, rounded

_CUT_STEPS = 60_000
_MOST_CUTS = 48
_MOST_VARIABLES = 8_000
_SPREAD_VARIABLES = 1_800
_SPREAD = 6
_NODES = 100
_PINCHING = 4


@dataclass(frozen=True)
class Certificate:
    """Extra work that every schedule within a budget needs; None if there is no such schedule.

    `how` says which bound it is.  `pinching` are the instants of the strongest bounds with the
    choices there, strongest first; `solution` is what the integer programme lets go, if it found
    anything.
    """

    bound: int | None
    how: str
    pinching: tuple[tuple[Instant, Breakpoint], ...] = ()
    solution: Drops | None = None


def certify(work: Rework, budget: int, peak: int, effort: float = 1.0) -> Certificate:
    """The strongest bound found around the place where the base order has its peak."""
    asked = instants(work, _around(work, peak, effort))
    ends = [instant.breakpoint(instant.capacity(budget)) for instant in asked]
    known = [(i, e) for i, e in zip(asked, ends, strict=True) if e is not None]
    if len(known) < len(asked):
        return Certificate(None, "no choice of what to keep fits at one instant")
    known.sort(key=lambda pair: -pair[1].bound)
    pinching = tuple(known[:_PINCHING])
    bound = rounded(work, known[0][1].bound)
    by_cut = Certificate(bound, "cut at one instant", pinching)
    room = _room(work, effort * _MOST_VARIABLES)
    some = sorted((i for i, _ in pinching[:room]), key=lambda instant: instant.at)
    if not some:
        return by_cut
    solved = Stages(work, some, budget).solve(int(_NODES * effort))
    if solved is None:
        return Certificate(None, "no choice of what to keep fits at several instants")
    solution = _merged(some, solved.kept) if solved.kept else None
    exact = rounded(work, solved.bound)
    if exact <= bound:
        return replace(by_cut, solution=solution)
    return Certificate(exact, "integer programme of several instants", pinching, solution)


def sharpen(work: Rework, budget: int, peak: int, effort: float = 1.0) -> Certificate | None:
    """The integer programme of instants spread from the peak on; None for larger programs.

    It takes longer and holds where memory pinches at many instants.
    """
    places = chain(work, peak)
    places = places[places.index(peak) :]
    count = min(_room(work, effort * _SPREAD_VARIABLES), len(places))
    if count < _SPREAD:
        return None
    spread = sorted({places[i * (len(places) - 1) // count] for i in range(count)})
    found = instants(work, spread)
    solved = Stages(work, found, budget).solve(int(_NODES * effort))
    if solved is None:
        return Certificate(None, "no choice of what to keep fits at several instants")
    solution = _merged(found, solved.kept) if solved.kept else None
    bound = rounded(work, solved.bound)
    return Certificate(bound, "integer programme of several instants", (), solution)


def _around(work: Rework, peak: int, effort: float) -> list[int]:
    """Places of the longest chain through the peak, dense near it and sparse far away."""
    places = chain(work, peak)
    centre = places.index(peak)
    count = min(max(int(_CUT_STEPS * effort) // len(work.reads), 4), _MOST_CUTS)
    found, offset = [peak], 1
    while len(found) < count and offset < len(places):
        near = (centre + offset, centre - offset)
        found += [places[i] for i in near if 0 <= i < len(places)]
        offset += max(1, offset // 4)
    return found


def _room(work: Rework, variables: float) -> int:
    """Instants of which an integer programme has no more than some variables."""
    steps, roots = len(work.reads), len(work.maker)
    return max((int(variables) - steps) // (2 * steps + roots), 0)


def _merged(found: list[Instant], kept: list[dict[int, float]]) -> Drops:
    drops: dict[int, frozenset[int]] = {}
    for instant, values in zip(found, kept, strict=True):
        drops |= instant.drops(frozenset(r for r, value in values.items() if value > 0.5))
    return drops

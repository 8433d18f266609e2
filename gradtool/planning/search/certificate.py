"""How little extra work a budget leaves open, and what is kept where it pinches most.

Bound c is computed at instants around the peak of the order without recompute: by cuts first, at
many instants; then, if the program is small, by the integer programme of the tightest.  Their
solutions are where the search for a plan begins.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gradtool.planning.search.cost_model import CostModel, Drops
from gradtool.planning.search.mincut import Breakpoint, Instant
from gradtool.planning.search.stages import Stages
from gradtool.planning.search.work_bound import chain, instants, least_budget, rounded

_CUT_STEPS = 60_000
_MOST_CUTS = 48
_MOST_VARIABLES = 8_000
_SPREAD_VARIABLES = 2_600
_SPREAD = 4
_NODES = 100
_PINCHING = 4
_SEVERAL = "integer programme of several instants"


@dataclass(frozen=True)
class Certificate:
    """Extra work that every schedule within a budget needs.

    `how` says which bound it is.  `pinching` are the instants of the strongest bounds with the
    choices there, strongest first; `solution` is what the integer programme lets go, if it found
    anything.
    """

    bound: int
    how: str
    pinching: tuple[tuple[Instant, Breakpoint], ...] = ()
    solution: Drops | None = None


def certificates(work: CostModel, budget: int, effort: float = 1.0) -> Iterator[Certificate | None]:
    """One certificate after the other, from quick to thorough; None proves that nothing fits."""
    if budget < least_budget(work):
        yield None
        return
    peak = work.peak_place
    yield by_cuts(work, budget, peak, effort)
    places = [p for p in chain(work) if p >= peak]
    count = min(_room(work, effort * _SPREAD_VARIABLES), len(places))
    if count >= _SPREAD:
        spread = sorted({places[i * (len(places) - 1) // count] for i in range(count)})
        yield _by_programme(work, budget, instants(work, spread), effort)


def by_cuts(work: CostModel, budget: int, peak: int, effort: float) -> Certificate | None:
    """The strongest cut around the peak; in small programs the integer programme of the strongest.

    None if one instant leaves no choice of what to keep.
    """
    asked = instants(work, _around(work, peak, effort))
    ends = [instant.breakpoint(instant.capacity(budget)) for instant in asked]
    known = [(i, e) for i, e in zip(asked, ends, strict=True) if e is not None]
    if len(known) < len(asked):
        return None
    known.sort(key=lambda pair: -pair[1].bound)
    pinching = tuple(known[:_PINCHING])
    cut = Certificate(rounded(work, known[0][1].bound), "cut at one instant", pinching)
    some = [i for i, _ in pinching[: _room(work, effort * _MOST_VARIABLES)]]
    if not some:
        return cut
    exact = _by_programme(work, budget, sorted(some, key=lambda i: i.at), effort)
    if exact is None or exact.bound > cut.bound:
        return exact and replace(exact, pinching=pinching)
    return replace(cut, solution=exact.solution)


def _by_programme(
    work: CostModel, budget: int, found: list[Instant], effort: float
) -> Certificate | None:
    solved = Stages(work, found, budget).solve(int(_NODES * effort))
    if solved is None:
        return None
    solution = _merged(found, solved.kept) if solved.kept else None
    how = "integer programme of one instant" if len(found) == 1 else _SEVERAL
    return Certificate(rounded(work, solved.bound), how, (), solution)


def _around(work: CostModel, peak: int, effort: float) -> list[int]:
    """Places of a longest chain, dense near the peak and sparse far away."""
    places = chain(work)
    centre = min(bisect_left(places, peak), len(places) - 1)
    most = max(int(_MOST_CUTS * min(2 * effort, 1)), 4)
    count = min(max(int(_CUT_STEPS * effort) // len(work.reads), 4), most)
    found, offset = [places[centre]], 1
    while len(found) < count and offset < len(places):
        near = (centre + offset, centre - offset)
        found += [places[i] for i in near if 0 <= i < len(places)]
        offset += max(1, offset // 4)
    return found


def _room(work: CostModel, variables: float) -> int:
    """Instants of which an integer programme has no more than some variables."""
    steps, roots = len(work.reads), len(work.maker)
    return max((int(variables) - steps) // (2 * steps + roots), 0)


def _merged(found: list[Instant], kept: list[dict[int, float]]) -> Drops:
    drops: dict[int, frozenset[int]] = {}
    for instant, values in zip(found, kept, strict=True):
        drops |= instant.drops(frozenset(r for r, value in values.items() if value > 0.5))
    return drops

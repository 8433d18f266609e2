"""A quick lower bound of extra work within a budget: `prove` takes longer and says more.

Bound c is computed at instants around the peak of the order without recompute: by cuts at many
instants, then, if the program is small, by the integer programme of the tightest one and the linear
relaxations of those of the tightest few and of some that are spread over the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.mincut import Instant
from gradtool.planning.search.staged_milp import Stages
from gradtool.planning.search.work_bound import chain, instants, least_budget, rounded

_CUT_STEPS = 60_000
_MOST_CUTS = 48
_MOST_VARIABLES = 8_000
_SPREAD_VARIABLES = 2_600
_SPREAD = 4
_NODES = 100
_PINCHING = 4


@dataclass(frozen=True)
class Certificate:
    """Extra work needed by every schedule within a budget; `how` names the bound."""

    bound: int
    how: str


def certificates(work: CostModel, budget: int, effort: float = 1.0) -> Iterator[Certificate | None]:
    """One certificate after the other, from quick to thorough; None proves that nothing fits.

    The first is the strongest cut; in small programs the integer programme of its instant comes
    next.
    """
    if budget < least_budget(work):
        yield None
        return
    peak = work.peak_place
    asked = _tightest(work, budget, peak, effort)
    if asked is None:
        yield None
        return
    most = min(_room(work, effort * _MOST_VARIABLES), _PINCHING)
    strongest, bound = asked[0]
    yield Certificate(rounded(work, bound), "cut at one instant")
    if most:
        yield _by_programme(work, budget, strongest, effort)
    if len(pinching := asked[:most]) > 1:
        in_order = sorted((instant for instant, _ in pinching), key=lambda i: i.at)
        yield _relaxed(work, budget, in_order)
    places = [p for p in chain(work) if p >= peak]
    count = min(_room(work, effort * _SPREAD_VARIABLES), len(places))
    if count >= _SPREAD:
        spread = sorted({places[i * (len(places) - 1) // count] for i in range(count)})
        yield _relaxed(work, budget, instants(work, spread))


def _tightest(
    work: CostModel, budget: int, peak: int, effort: float
) -> list[tuple[Instant, Fraction]] | None:
    """Instants around the peak and the extra work proven by their cuts, the strongest first.

    None if one of them leaves no choice of residuals.
    """
    found: list[tuple[Instant, Fraction]] = []
    for instant in instants(work, _around(work, peak, effort)):
        end = instant.breakpoint(instant.capacity(budget))
        if end is None:
            return None
        found.append((instant, end.bound))
    return sorted(found, key=lambda pair: -pair[1])


def _by_programme(
    work: CostModel, budget: int, instant: Instant, effort: float
) -> Certificate | None:
    solved = Stages(work, [instant], budget).solve(int(_NODES * effort))
    if solved is None:
        return None
    return Certificate(rounded(work, solved.bound), "integer programme of one instant")


def _relaxed(work: CostModel, budget: int, found: list[Instant]) -> Certificate | None:
    bound = Stages(work, found, budget).relaxed()
    if bound is None:
        return None
    return Certificate(rounded(work, bound), "linear programme of several instants")


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
    """Instants whose integer programme has no more than some variables."""
    steps, roots = len(work.reads), len(work.maker)
    return max((int(variables) - steps) // (2 * (steps + roots)), 0)

"""The frontier of memory and work: plans where the curve bends."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from gradtool.workloads.budgets.budget_queries import work_of
from gradtool.workloads.budgets.search import PROOF, Search
from gradtool.workloads.names import POINTS
from gradtool.workloads.planned import Planned
from gradtool.workloads.workload import Workload


def frontier(work: Workload, points: int = POINTS, search: Search | None = None) -> list[Planned]:
    """Plans from the least peak found to that of keeping everything, with rising budgets.

    Of all on the frontier those that hold the shape of the curve: each is the one farthest from the
    line between its neighbours (Douglas and Peucker 1973, Algorithms for the reduction of the
    number of points required to represent a digitized line or its caricature).
    """
    search = search or Search()
    answers = search.deepest(work)
    curve = answers.curve()
    chosen = [curve[i] for i in bends([(p.peak, work_of(p)) for p in curve], points)]
    for each in chosen:
        if work_of(each):
            answers.prove(each.peak, PROOF / points)
    found = [answers.proven(each, each.peak) for each in reversed(chosen)]
    return [_hurried(each) if search.seconds is not None else each for each in found]


def _hurried(found: Planned) -> Planned:
    """A plan that depends on the clock, unless it is proven to be the best."""
    proof = found.proof
    return replace(found, proof=proof and replace(proof, cut_short=bool(proof.gap)))


def bends(curve: list[tuple[int, int]], count: int) -> list[int]:
    """The places of so many points that hold the shape of a curve, its ends among them."""
    if len(curve) <= count:
        return list(range(len(curve)))
    (left, low), (right, high) = curve[0], curve[-1]
    wide, tall = max(abs(right - left), 1), max(abs(high - low), 1)
    at = [((x - left) / wide, (y - low) / tall) for x, y in curve]
    chosen = [0, len(curve) - 1]
    while len(chosen) < count:
        gaps = pairwise(chosen)
        far = [(_height(at, a, i, b), -i) for a, b in gaps for i in range(a + 1, b)]
        chosen = sorted([*chosen, -max(far)[1]])
    return chosen


def _height(at: list[tuple[float, float]], a: int, i: int, b: int) -> float:
    """How far a point lies from the line between two others."""
    (x0, y0), (x, y), (x1, y1) = at[a], at[i], at[b]
    return abs((x1 - x0) * (y0 - y) - (x0 - x) * (y1 - y0))

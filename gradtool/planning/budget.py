"""The least extra work with which a program fits into a budget of bytes, and how little it could be.

Minimum cuts and an integer programme say what to keep where memory pinches most (`certificate`); a
local search turns that into schedules and improves them (`descent`); the simulator has the last
word.  Everything stops on counted work, so the same question has the same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gradtool.errors import OverBudget
from gradtool.planning.certificate import Certificate, certify
from gradtool.planning.descent import Descent, Found
from gradtool.planning.knapsack import fill
from gradtool.planning.mincut import Breakpoint, Instant
from gradtool.planning.rework import Rework
from gradtool.planning.schedule import Schedule
from gradtool.planning.work_bound import least_budget
from gradtool.program import Program

_LIMIT = 3_000_000
_FEW = 200
_NARROWER = 6


@dataclass(frozen=True)
class Answer:
    """A schedule within a budget.

    `peak` and `budget` are in bytes; `extra`, `bound` and `total` are in units of cost (FLOPs unless
    other costs were given): what runs again, what no schedule can do without, and one step without
    recompute.  `which_bound` says what proves the bound, `how` where the schedule comes from, and
    `complete` whether the search ended by itself.
    """

    schedule: Schedule
    budget: int
    peak: int
    extra: int
    bound: int
    total: int
    which_bound: str
    how: str
    complete: bool

    @property
    def gap(self) -> int:
        """Work between the schedule and the bound; 0 if the schedule is proven optimal."""
        return self.extra - self.bound

    def percent(self, work: int) -> float:
        """Work in % of one step without recompute."""
        return 100.0 * work / self.total if self.total else 0.0


def cheapest(
    program: Program,
    budget: int,
    *,
    effort: float = 1.0,
    seed: int = 0,
    costs: Sequence[int | None] | None = None,
    order: Sequence[int] | None = None,
) -> Answer:
    """The cheapest schedule found whose peak is at most `budget` bytes.

    Steps first run in `order` (that of the program if None), or later if nobody needs them yet;
    `costs` replaces the steps' FLOPs.  `effort` scales the counted work of search and certificate.

    Raises:
        OverBudget: no schedule was found, with the least budget known to be reachable or a proof
            that there is none.
    """
    work = Rework(program, costs, order)
    plain = work.weigh({})
    if plain.peak <= budget:
        found = Found({}, plain)
        return _answer(work, budget, found, Certificate(0, "nothing runs again"), "order", True)
    least = least_budget(work)
    if budget < least:
        raise OverBudget(budget, plain.peak, least, proven=True)
    peak = plain.during[plain.profile.index(plain.peak)]
    certificate = certify(work, budget, peak, effort)
    if certificate.bound is None:
        raise OverBudget(budget, plain.peak, least, proven=True)
    search = Descent(work, budget, int(_LIMIT * effort), certificate.bound)
    best, how = _first(search, certificate)
    if best is not None and best.extra > certificate.bound:
        sharper = sharpen(work, budget, peak, effort)
        if sharper is not None and sharper.bound is not None:
            again, start = _first(search, sharper)
            if again is not None and again.extra < best.extra:
                best, how = again, start
            if sharper.bound > certificate.bound:
                certificate = sharper
                search.enough = sharper.bound
    if best is None:
        raise OverBudget(budget, search.lowest or plain.peak, least, proven=False)
    if _is_small(search):
        better = search.kick(best, seed)
        if better.extra < best.extra:
            best, how = better, f"{how}, then local search"
    return _answer(work, budget, best, certificate, how)


def _first(search: Descent, certificate: Certificate) -> tuple[Found | None, str]:
    """The best schedule to which a start leads, and which start that is."""
    best, how = None, ""
    for start, found in _starts(search, certificate):
        worth = None if best is None else Fraction(best.extra)
        fits = search.fit(found, worth)
        if fits is not None and (worth is None or fits.extra < worth):
            best, how = search.trim(fits), start
        if best is not None and search.is_done(best):
            break
    return best, how


def _starts(search: Descent, certificate: Certificate) -> Iterator[tuple[str, Found]]:
    """Where to begin: what the bounds keep at the tightest instants, and with nothing dropped."""
    if certificate.solution is not None:
        yield "integer programme", search.weigh(certificate.solution)
    few = search.left > _FEW * len(search.work.reads)
    for instant, ends in certificate.pinching[: 2 if few else 1]:
        yield "cut", _filled(search, instant, ends)
    if few:
        yield "greedy drops", search.weigh({})


def _filled(search: Descent, instant: Instant, ends: Breakpoint) -> Found:
    """What a cut keeps at an instant, with less room there until the rest of the step fits too."""
    capacity = instant.capacity(search.budget)
    found = search.weigh(instant.drops(fill(search.work, ends, capacity).kept))
    for _ in range(_NARROWER):
        over = found.weighed.peak - search.budget
        if over <= 0:
            break
        capacity -= over
        narrower = ends if capacity >= ends.small.bytes else instant.breakpoint(capacity)
        if narrower is None:
            break
        ends = narrower
        found = search.weigh(instant.drops(fill(search.work, ends, capacity).kept))
    return found


def _answer(
    work: Rework, budget: int, found: Found, certificate: Certificate, how: str, complete: bool
) -> Answer:
    return Answer(
        schedule=work.schedule(found.weighed),
        budget=budget,
        peak=found.weighed.peak,
        extra=found.extra,
        bound=certificate.bound or 0,
        total=work.total,
        which_bound=certificate.how,
        how=how,
        complete=complete,
    )

"""Where a search for schedules begins, and the first schedule within the budget that it finds."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from gradtool.planning.search.certificate import Certificate
from gradtool.planning.search.descent import Descent, Found
from gradtool.planning.search.knapsack import fill
from gradtool.planning.search.mincut import Breakpoint, Instant

_NARROWER = 6
_CUTS = 2
_SHARE = 3
_LAST = "greedy drops"


def first(
    search: Descent, certificate: Certificate, best: Found | None = None
) -> tuple[Found | None, str]:
    """The best schedule to which a start leads, and which start that is.

    Only schedules better than `best` count; without one nothing dropped is a start, too.  Each
    start has a third of what is left of the limit, the last one all of it if there is no schedule.
    """
    how = ""
    for start, found in _starts(search, certificate, greedy=best is None):
        worth = None if best is None else Fraction(best.extra)
        share = 1 if best is None and start == _LAST else _SHARE
        rest = search.left - search.left // share
        search.left -= rest
        fits = search.fit(found, worth)
        if fits is not None and (worth is None or fits.extra < worth):
            best, how = search.trim(fits) if search.is_thorough else fits, start
        search.left += rest
        if best is not None and search.is_done(best):
            break
    return best, how


def _starts(
    search: Descent, certificate: Certificate, *, greedy: bool
) -> Iterator[tuple[str, Found]]:
    """What the bounds keep at the tightest instants, and everything."""
    if certificate.solution is not None:
        yield "integer programme", search.weigh(certificate.solution)
    for instant, ends in certificate.pinching[: _CUTS if search.is_thorough else 1]:
        yield "minimum cut", _filled(search, instant, ends)
    if greedy and search.is_thorough:
        yield _LAST, search.weigh({})


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

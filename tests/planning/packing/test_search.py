from __future__ import annotations

import numpy as np
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from packings import OUT_OF_REACH, SEARCHED, SMALL, lasting, least, problem, problems

from gradtool.planning.packing.canonical import FOUND, IMPOSSIBLE, STOPPED, fit, search
from gradtool.planning.packing.pack import Climb, height, ranks
from gradtool.planning.packing.problem import RANKS

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}
PLENTY = 10**7


# --------------------------------------------------------------------------------- search


@given(SMALL.map(lasting), st.sampled_from(RANKS))
@settings(max_examples=trials(60), **EXAMPLES)
def test_the_search_finds_what_fits_and_refutes_what_does_not(spans, keys):
    for part in problems(spans):
        members = [spans[i] for i in part.members]
        best = least(members) // part.unit
        order = ranks(part, keys)
        verdict, _, offsets = fit(part, order, best, PLENTY)

        assert verdict == FOUND
        assert height(part, np.array(offsets)) == best
        assert fit(part, order, best - 1, PLENTY)[0] == IMPOSSIBLE


def test_a_search_stops_where_its_work_is_spent():
    part = problem(SEARCHED)
    needed = fit(part, ranks(part, "TLA"), 7, PLENTY)[1]
    verdict, work, _ = fit(part, ranks(part, "TLA"), 7, needed // 2)

    assert verdict == STOPPED
    assert needed // 2 <= work < needed


def test_two_sides_of_a_boundary_are_solved_alone():
    """After the buffer that spans both is placed, the second side fails whatever the first does.

    The first side has 8 buffers that fit in any order; the second has 3 of 2 in a room of 5.
    """
    first, last = [0] * 8 + [1] * 3 + [0], [0] * 8 + [1] * 3 + [1]
    sizes, stop = [1] * 8 + [2] * 3 + [9], [b + 1 for b in last]
    verdict, work, _ = search(first, stop, sizes, list(range(12)), 2, 17, PLENTY)

    assert verdict == FOUND
    assert work < 1000


# ---------------------------------------------------------------------------- the frontier


def climbed(spans, work):
    part = problem(spans)
    tall = np.cumsum(part.size) - part.size
    climb = Climb(part, tall, part.peak_live, work, how="stacked")
    climb.run(None)
    return climb


def test_climbing_finds_the_least_and_proves_it():
    climb = climbed(SEARCHED, PLENTY)

    assert climb.size == climb.bound == 7


def test_climbing_proves_that_the_load_is_out_of_reach():
    climb = climbed(OUT_OF_REACH, PLENTY)

    assert climb.problem.peak_live == 5
    assert climb.size == climb.bound == 6


def test_climbing_without_work_changes_nothing():
    climb = climbed(SEARCHED, 0)

    assert (climb.bound, climb.size, climb.how) == (7, 14, "stacked")

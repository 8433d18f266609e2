from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packings import OUT_OF_REACH, SEARCHED, SMALL, columns, lasting, least

from gradtool.planning.arena import cpsat
from gradtool.planning.arena.canonical import FOUND, IMPOSSIBLE, STOPPED, search
from gradtool.planning.arena.climb import Climb, height, ranks
from gradtool.planning.arena.compiled import search as search_problem
from gradtool.planning.arena.greedy import best_fit, greedy, skyline
from gradtool.planning.arena.problem import RANKS, parts

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}
PLENTY = 10**7


def problems(spans):
    sizes, first, last = (np.array(c, dtype=np.int64) for c in columns(spans))
    return list(parts(first, last, sizes))


def problem(spans):
    (found,) = problems(spans)
    return found


# --------------------------------------------------------------------------------- search


@given(SMALL.map(lasting), st.sampled_from(RANKS))
@settings(max_examples=60, **EXAMPLES)
def test_the_search_finds_what_fits_and_refutes_what_does_not(spans, keys):
    for part in problems(spans):
        members = [spans[i] for i in part.members]
        best = least(members) // part.unit
        order = ranks(part, keys)
        verdict, _, offsets = search_problem(part, order, best, PLENTY, fast=False)

        assert verdict == FOUND
        assert height(part, np.array(offsets)) == best
        assert search_problem(part, order, best - 1, PLENTY, fast=False)[0] == IMPOSSIBLE


def test_a_search_stops_where_its_work_is_spent():
    part = problem(SEARCHED)
    needed = search_problem(part, ranks(part, "TLA"), 7, PLENTY, fast=False)[1]
    verdict, work, _ = search_problem(part, ranks(part, "TLA"), 7, needed // 2, fast=False)

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


@pytest.mark.extra
def test_the_compiled_search_answers_as_the_interpreted_one():
    pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    for _ in range(20):
        first = rng.integers(0, 12, 20)
        spans = zip(rng.integers(1, 9, 20), first, first + rng.integers(0, 6, 20), strict=True)
        for part in problems([tuple(map(int, span)) for span in spans]):
            given_ = part, ranks(part, "TLA"), part.load, 20_000

            assert search_problem(*given_, fast=True) == search_problem(*given_, fast=False)


# -------------------------------------------------------------------------------- greedy

ONLY = {
    "best fit by size": [(1, 0, 3), (2, 0, 2), (4, 0, 0), (2, 4, 5), (3, 1, 3), (2, 3, 5),
                         (3, 2, 3)],
    "best fit by first use": [(1, 3, 4), (1, 3, 4), (4, 5, 5), (4, 1, 3), (3, 1, 4), (1, 4, 5),
                              (3, 4, 5)],
    "best fit by area": [(3, 4, 5), (2, 3, 4), (1, 1, 2), (2, 3, 5), (4, 2, 2), (1, 1, 1),
                         (2, 1, 3)],
}  # fmt: skip


@pytest.mark.parametrize("how", ONLY)
def test_each_best_fit_wins_somewhere(how):
    part = problem(ONLY[how])
    sizes = {name: height(part, offsets) for offsets, name in greedy(part)}

    assert [name for name, size in sizes.items() if size == min(sizes.values())] == [how]


def test_the_skyline_fills_the_lowest_place_first():
    """By size alone 3 would come before 2; 2 can lie lower.

    offset 4   CC
    offset 0  AABB   (A leaves before B comes)
    """
    part = problem([(4, 0, 1), (2, 2, 3), (3, 1, 2)])

    assert skyline(part, np.array([0, 2, 1])).tolist() == [0, 0, 4]


def test_the_smallest_gap_that_fits_is_taken():
    """Gaps of 2 and of 1 are free at step 1; 1 goes into the second."""
    part = problem([(4, 0, 1), (2, 0, 0), (3, 0, 1), (1, 0, 0), (2, 0, 1), (1, 1, 1)])
    offsets = best_fit(part, np.arange(6))

    assert offsets.tolist() == [0, 4, 6, 9, 10, 9]


# -------------------------------------------------------------------------------- problem


def test_orders_go_by_load_length_and_area():
    """Loads are 3, 3, 5, 2; lengths 2, 4, 1, 1; areas 2, 8, 3, 0."""
    part = problem([(1, 0, 1), (2, 0, 3), (3, 2, 2)])

    assert part.profile.tolist() == [3, 5, 2]
    assert part.order("TLA").tolist() == [1, 2, 0]
    assert part.order("LAT").tolist() == [1, 0, 2]
    assert part.order("A").tolist() == [1, 2, 0]


@given(SMALL.map(lasting))
@settings(max_examples=60, **EXAMPLES)
def test_the_largest_load_around_a_buffer_orders_it(spans):
    for part in problems(spans):
        wanted = [-part.profile[a:b].max() for a, b in zip(part.start, part.stop, strict=True)]

        assert part.order("T").tolist() == np.argsort(wanted, kind="stable").tolist()


# ---------------------------------------------------------------------------- the ladder


def climbed(spans, work):
    part = problem(spans)
    tall = np.cumsum(part.size) - part.size
    climb = Climb(part, tall, part.load, work, fast=False, how="stacked")
    climb.run(None)
    return climb


def test_climbing_finds_the_least_and_proves_it():
    climb = climbed(SEARCHED, PLENTY)

    assert climb.size == climb.bound == 7


def test_climbing_proves_that_the_load_is_out_of_reach():
    climb = climbed(OUT_OF_REACH, PLENTY)

    assert climb.problem.load == 5
    assert climb.size == climb.bound == 6


def test_climbing_without_work_changes_nothing():
    climb = climbed(SEARCHED, 0)

    assert (climb.bound, climb.size, climb.how) == (7, 14, "stacked")


@pytest.mark.extra
def test_cp_sat_closes_what_is_open():
    pytest.importorskip("ortools")
    part = problem(SEARCHED)
    offsets, bound = cpsat.improve(part, np.cumsum(part.size) - part.size, part.load, time=1.0)

    assert height(part, offsets) == bound == 7


@pytest.mark.extra
def test_cp_sat_agrees_that_the_load_is_out_of_reach():
    pytest.importorskip("ortools")
    part = problem(OUT_OF_REACH)
    found = cpsat.improve(part, np.cumsum(part.size) - part.size, part.load, time=1.0)

    assert found[1] == height(part, found[0]) == 6

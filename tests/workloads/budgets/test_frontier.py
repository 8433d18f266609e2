"""The frontier: work falls as the budget rises, and points lie where the curve bends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layered import layers

from gradtool.workloads.budgets.frontier import bends, frontier
from gradtool.workloads.budgets.search import Search

QUICK = Search(0.1)


def test_work_falls_as_the_budget_rises():
    work = layers()
    found = frontier(work, 7, QUICK)
    extra = [p.proof.extra for p in found]
    peaks = [p.plan.peak for p in found]

    assert 2 < len(found) <= 7
    assert extra == sorted(set(extra), reverse=True)
    assert peaks == sorted(set(peaks))
    assert extra[-1] == 0
    assert all(p.plan.peak == p.proof.budget for p in found)
    assert not any(p.proof.cut_short for p in found)


def test_every_point_has_a_bound_of_its_work():
    found = frontier(layers(6), 5, QUICK)

    assert all(0 < p.proof.bound <= p.proof.extra for p in found if p.proof.extra)


@pytest.mark.parametrize("points", [2, 3, 20])
def test_the_ends_are_the_least_peak_found_and_keeping_everything(points):
    work = layers()
    found = frontier(work, points, QUICK)
    states = QUICK.answers(work).curve()

    assert len(found) <= points
    assert found[0].plan.peak == states[-1].plan.peak
    assert found[-1].plan.peak == work.kept.peak


def test_a_frontier_that_depends_on_the_clock_says_so():
    found = frontier(layers(), 5, Search(0.1, seconds=1e-6))

    assert [p.proof.cut_short for p in found] == [bool(p.proof.gap) for p in found]


def test_of_a_curve_with_one_bend_that_is_the_point_between_its_ends():
    curve = [(100, 0), (90, 1), (80, 2), (70, 3), (60, 30), (50, 60), (40, 90)]

    assert bends(curve, 3) == [0, 3, 6]
    assert bends(curve, 9) == list(range(7))


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=2), st.integers(2, 9))
def test_points_keep_their_order_and_there_are_no_more_than_asked(curve, count):
    found = bends(curve, count)

    assert found == sorted(set(found))
    assert len(found) == min(count, len(curve))
    assert (found[0], found[-1]) == (0, len(curve) - 1)

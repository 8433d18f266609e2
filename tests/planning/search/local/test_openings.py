from __future__ import annotations

import numpy as np
from programs import program

from gradtool.planning.search.local.openings import all_from, dense, gains, some_around
from gradtool.planning.search.local.surroundings import Surroundings
from gradtool.planning.simulate import Simulator

LENGTH = 300


def around(order=range(LENGTH), costs=(1,) * LENGTH):
    lines = ["v0 = Tanh x", *(f"v{i} = Tanh v{i - 1}" for i in range(1, LENGTH))]
    return Surroundings(Simulator(program(*lines, outputs=f"v{LENGTH - 1}")), order, costs)


def again(*steps):
    """Every step, and those given once more right behind themselves."""
    return [s for step in range(LENGTH) for s in ([step, step] if step in steps else [step])]


def test_work_that_runs_again_could_be_gained():
    costs = list(range(LENGTH))
    found = gains(around(again(5, 7), costs), 1 << 20)

    assert {p: gain for p, gain in enumerate(found) if gain} == {6: 5, 9: 7}


def test_above_the_budget_bytes_could_be_gained():
    opened = around(again(5, 7))
    found = gains(opened, max(opened.profile) - 1)

    assert set(found) == {0, 1}
    assert [p for p, gain in enumerate(found) if gain] == [
        p for p, live in enumerate(opened.profile) if live == max(opened.profile)
    ]


def test_windows_with_most_to_gain_come_first_and_those_with_nothing_never():
    found = [0] * LENGTH
    found[40], found[100], found[290] = 2, 5, 5

    assert list(dense(found)) == [64, 96, 256, 288, 0, 32]


def test_all_steps_move_up_to_the_end_of_the_schedule():
    opened = around()

    assert all_from(opened, 32) == (32, 96, tuple(range(32, 96)))
    assert all_from(opened, 288) == (288, 300, tuple(range(288, 300)))


def test_repeats_near_the_centre_move_and_random_others():
    opened = around(again(100, 110, 250))
    one, other = (some_around(opened, 101, np.random.default_rng(seed)) for seed in (0, 1))

    assert (one.begin, one.end) == (1, 201)
    assert {100, 110} <= set(one.free) <= set(range(201))
    assert 40 <= len(one.free) <= 41
    assert set(one.free) != set(other.free)


def test_at_the_ends_of_a_schedule_windows_are_as_long():
    opened = around(again(0, 299))
    places = [some_around(opened, centre, np.random.default_rng(0))[:2] for centre in (1, 301)]

    assert places == [(0, 200), (102, 302)]

from __future__ import annotations

from dataclasses import replace

from mountain import mountain

from gradtool.planning.search.local.surroundings import Surroundings
from gradtool.planning.simulate import Simulator


def opened(order, begin, end, budget=1 << 20):
    around = Surroundings(Simulator(mountain().program), order, [1] * 8)
    return around.window(begin, end, budget, order[begin:end], 2)


def test_a_step_has_every_position_at_which_it_runs():
    window = opened((0, 1, 0, 2, 0, 3, 4, 5, 6, 7), 2, 6)

    assert (window.positions(0), window.positions(3), window.positions(1)) == ([2, 4], [5], [])


def test_the_question_does_not_depend_on_where_the_window_is():
    window = opened(tuple(range(8)), 3, 6)

    assert replace(window, begin=9).question == window.question
    assert replace(window, entering=dict.fromkeys(window.entering, 99)).question == window.question


def test_the_question_changes_with_what_is_asked():
    window = opened(tuple(range(8)), 3, 6)
    others = [
        replace(window, steps=window.steps[::-1]),
        replace(window, runs={**window.runs, 3: 9}),
        replace(window, room=window.room - 1),
        replace(window, frozen=frozenset({4})),
        replace(window, owed=()),
        replace(window, before=((3, 4),)),
    ]

    assert all(other.question != window.question for other in others)


def test_a_window_fits_up_to_its_peak():
    peak = Simulator(mountain().program).profile(range(8))[4]
    steps = tuple(range(8))

    assert opened(steps, 4, 5, peak).fits
    assert not opened(steps, 4, 5, peak - 1).fits

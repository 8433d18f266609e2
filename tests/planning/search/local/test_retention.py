"""The model of a window counts what the simulator counts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from poor_schedules import costs_of, extra_of, poor
from programs import program
from random_programs import orders, programs
from random_steps import steps

from gradtool.planning.schedule import Schedule, pruned, replay
from gradtool.planning.search.local.retention import Contents, Retention
from gradtool.planning.search.local.surroundings import Surroundings
from gradtool.planning.simulate import Simulator

pytestmark = pytest.mark.extra

pytest.importorskip("ortools", reason="windows need the extra solver")
EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


@settings(max_examples=120, **EXAMPLES)
@given(st.data())
def test_what_runs_now_fits_and_what_is_found_is_never_above_the_room(data):
    """Its room is the peak of the window now."""
    made = data.draw(steps(7))
    order = poor(data, made)
    simulator = Simulator(made)
    around = Surroundings(simulator, order, costs_of(made))
    begin = data.draw(st.integers(0, len(order) - 1))
    end = data.draw(st.integers(begin + 1, len(order)))
    free = data.draw(st.sets(st.sampled_from(order[begin:end])))
    budget = max(around.profile[begin:end])
    window = around.window(begin, end, budget, free, data.draw(st.integers(0, 3)))
    found = Retention(around, window).improved(0.1)

    assert window.peak == window.room
    assert found is not None
    changed = pruned(made, Schedule.of((*order[:begin], *found.steps, *order[end:]))).order
    replay(made, Schedule.of(changed))
    assert simulator.peak(changed) <= max(budget, simulator.peak(order))
    assert extra_of(made, changed) <= extra_of(made, order)


@settings(max_examples=40, **EXAMPLES)
@given(st.data())
def test_views_results_and_work_in_place_are_counted_as_the_simulator_does(data):
    made = data.draw(programs())
    order = data.draw(orders(made.steps))
    costs = [1] * len(order)
    around = Surroundings(Simulator(made), order, costs)
    begin = data.draw(st.integers(0, len(order) - 1))
    end = data.draw(st.integers(begin + 1, len(order)))
    window = around.window(begin, end, max(around.profile[begin:end]), order, 2)
    found = Retention(around, window).improved(0.1)

    assert found is not None
    changed = pruned(made, Schedule.of((*order[:begin], *found.steps, *order[end:])))
    assert Simulator(made).peak(changed.order) <= max(around.profile)
    assert Simulator(replay(made, changed)).peak(range(len(changed.order))) <= max(around.profile)


def test_a_repeat_that_nobody_needs_goes_and_that_is_proven():
    made = program("a = Tanh x", "b = Tanh a", "y = Mul a b", outputs="y")
    around = Surroundings(Simulator(made), (0, 1, 0, 2), [1] * 3)
    window = around.window(0, 4, 1 << 20, (0, 1, 2), 0)

    assert Retention(around, window).improved(1) == Contents((0, 1, 2), proven=True)


def test_bytes_go_before_work_where_the_window_does_not_fit():
    """While c of 256 bytes is made from b, a of 64 need not be there if it runs again."""
    made = program("a = Tanh x", "b = Tanh a", "c = Tanh b", "d = Tanh c", "y = Mul a d",
                   outputs="y", sizes={"b": 64, "c": 64})  # fmt: skip
    around = Surroundings(Simulator(made), range(5), [1] * 5)
    peak = max(around.profile)
    window = around.window(0, 5, peak - 64, range(5), 0)
    found = Retention(around, window).improved(1)

    assert found is not None
    assert found.steps.count(0) > 1
    assert Simulator(made).peak(found.steps) == peak - 64

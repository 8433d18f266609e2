from __future__ import annotations

import pytest
from exhaustive import least_extra
from graphs_of_the_literature import read
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mountain import mountain
from programs import program
from random_programs import orders, programs
from random_steps import steps

from gradtool.planning.budget.rework import Rework
from gradtool.planning.polish.retention import Retention
from gradtool.planning.polish.surroundings import Surroundings
from gradtool.planning.polish.windows import windowed
from gradtool.planning.schedule import Schedule, pruned, replay
from gradtool.planning.simulate import Simulator

pytest.importorskip("ortools", reason="windows need the extra solver")
EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


def poor(data, made):
    """A schedule that runs steps again without need: what they read is there once they ran."""
    order = list(range(len(made.steps)))
    for _ in range(data.draw(st.integers(0, 3))):
        step = data.draw(st.sampled_from(range(len(made.steps))))
        if made.steps[step].recomputable and made.steps[step].flops is not None:
            order.insert(data.draw(st.integers(order.index(step) + 1, len(order))), step)
    return pruned(made, Schedule.of(order)).order


def costs_of(made):
    return [s.flops for s in made.steps]


def extra_of(made, order):
    return sum(made.steps[s].flops or 0 for s in order) - sum(s.flops or 0 for s in made.steps)


@settings(max_examples=150, **EXAMPLES)
@given(st.data())
def test_what_runs_now_fits_and_what_is_found_is_never_above_the_room(data):
    """The model counts what the simulator counts: its room is the peak of the window now."""
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


@settings(max_examples=50, **EXAMPLES)
@given(st.data())
def test_from_a_schedule_that_keeps_nothing_the_optimum_is_found(data):
    made = data.draw(steps(7))
    work = Rework(made)
    all_of_it = frozenset(r for r in work.bytes if work.may_drop(r))
    weighed = work.weigh(dict.fromkeys(range(len(made.steps)), all_of_it))
    start = tuple(weighed.places)
    budget = data.draw(st.integers(weighed.peak, max(weighed.peak, work.weigh({}).peak - 1)))
    assume(weighed.extra)
    found = windowed(made, start, budget, effort=0.1)

    assert Simulator(made).peak(found.order) == found.peak <= budget
    assert found.extra == extra_of(made, found.order) == least_extra(work, budget)


@settings(max_examples=30, **EXAMPLES)
@given(st.data())
def test_a_start_above_the_budget_is_never_left_worse_nor_below_the_optimum(data):
    made = data.draw(steps(6))
    start = poor(data, made)
    peak = Simulator(made).peak(start)
    budget = data.draw(st.integers(peak // 2, peak))
    found = windowed(made, start, budget, effort=0.05)
    once = [s for s, step in enumerate(made.steps) if not step.recomputable]

    assert found.rank(budget) <= (max(peak - budget, 0), extra_of(made, start))
    assert [s for s in found.order if s in once] == once
    assert found.peak > budget or found.extra >= least_extra(Rework(made), budget)


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


def test_a_start_above_the_budget_comes_below_it():
    """One after the other: b of 256 bytes beside x and s of 64 each, and then t of 64."""
    made = program(
        "a = Tanh x", "b = Tanh x", "s = Exp a", "t = Exp b", "y = Mul s t",
        outputs="y", sizes={"a": 64, "b": 64},
    )  # fmt: skip
    peak = Simulator(made).peak(range(5))
    found = windowed(made, range(5), peak - 64, costs=[1] * 5)

    assert (found.peak, found.extra) == (256 + 3 * 64, 0)


def test_the_same_question_has_the_same_answer():
    work = mountain()
    start = (0, 1, 2, 3, 4, 0, 1, 2, 5, 0, 1, 6, 0, 7)
    budget = work.simulator.peak(start)
    ask = {"costs": work.costs, "effort": 0.05}
    one, other = (windowed(work.program, start, budget, **ask) for _ in range(2))

    assert one == other
    assert one.peak <= budget
    assert one.extra < sum(work.costs[s] for s in start) - work.total


def test_nothing_is_tried_where_the_start_is_good_enough_or_the_search_is_stopped():
    made = read("rl1")
    peak = Simulator(made).peak(range(100))

    assert windowed(made, range(100), peak).moves == 0
    assert windowed(made, range(100), peak // 2, stop=lambda: True).order == tuple(range(100))

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from exhaustive import least_extra
from graphs_of_the_literature import read
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mountain import mountain
from programs import program
from random_steps import steps

from gradtool.errors import OverBudget
from gradtool.planning.schedule import replay
from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.planner import cheapest, frontier
from gradtool.planning.search.work_bound import least_budget
from gradtool.planning.simulate import Simulator

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}
COSTS = [9, 1, 1, 1, 1, 1, 1, 1]


@settings(max_examples=60, **EXAMPLES)
@given(st.data())
def test_no_plan_is_above_its_budget_nor_better_than_the_optimum(data):
    made = data.draw(steps(7))
    work = CostModel(made)
    least, plain = least_budget(work), work.weigh({}).peak
    assume(least < plain)
    budget = data.draw(st.integers(least, plain - 1))
    optimum = least_extra(work, budget)
    try:
        answer = cheapest(made, budget, SearchContext(effort=0.01))
    except OverBudget as error:
        proven = error.proven
        answer = None

    if answer is None:
        assert not proven or optimum is None
        return
    assert Simulator(made).peak(answer.schedule.order) == answer.peak <= budget
    assert answer.bound <= optimum <= answer.extra


def layers(count):
    """Layers with weights: the gradients of their inputs come before those of their weights."""
    forward = [f"a{i} = Tanh {f'a{i - 1}' if i else 'x'}" for i in range(count)]
    backward = [f"g{count} = Exp a{count - 1}"]
    for i in reversed(range(1, count)):
        backward += [f"d{i} = Mul g{i + 1} a{i}", f"g{i} = Exp d{i}", f"w{i} = Mul a{i - 1} d{i}"]
    large = [f"{name}{i}" for name in "agd" for i in range(count + 1)]
    weights = [f"w{i}" for i in range(1, count)]
    return program(
        *forward, *backward, "y = Exp g1",
        outputs=" ".join(["y", *weights]), sizes=dict.fromkeys(large, 256),
    )  # fmt: skip


def test_a_tight_budget_is_met_in_another_order_and_stays_so_as_it_grows():
    """Three values of 1 KiB beside the results; the least of one step is 256 bytes less."""
    made = layers(5)
    given = range(len(made.steps))
    least = 3 * 1024 + 5 * 64
    work = []
    for budget in range(least, 4352, 320):
        context = SearchContext(costs=(1,) * len(given), effort=0.02)
        found = cheapest(made, budget, context, order=given)
        work.append(found.extra)

        assert found.peak <= budget

    assert work == sorted(work, reverse=True)


def test_a_budget_that_holds_anyway_costs_nothing():
    answer = cheapest(mountain().program, 6 * 64, SearchContext(costs=COSTS))

    assert (answer.extra, answer.bound, answer.gap) == (0, 0, 0)
    assert answer.schedule.order == tuple(range(8))


def test_an_order_that_needs_less_comes_before_recompute():
    """a and b of 256 bytes shrink to 64 each: one after the other they need less."""
    made = program(
        "a = Tanh x", "b = Tanh x", "s = Exp a", "t = Exp b", "y = Mul s t",
        outputs="y", sizes={"a": 64, "b": 64},
    )  # fmt: skip
    plain = Simulator(made).peak(range(5))
    answer = cheapest(made, plain - 64, SearchContext(costs=[1] * 5))

    assert answer.extra == 0
    assert sorted(answer.schedule.order) == [0, 1, 2, 3, 4]


def test_the_plan_of_a_small_program_is_proven_optimal():
    answer = cheapest(mountain().program, 5 * 64, SearchContext(costs=COSTS))

    assert (answer.extra, answer.gap) == (1, 0)
    assert answer.percent(answer.extra) == pytest.approx(100 / 16)
    assert Simulator(replay(mountain().program, answer.schedule)).peak(range(9)) == 5 * 64


def test_an_unreachable_budget_says_what_is_known():
    with pytest.raises(OverBudget, match="no schedule fits into 100 bytes") as caught:
        cheapest(mountain().program, 100, SearchContext(costs=COSTS))

    assert caught.value.proven
    assert caught.value.reached == 4 * 64
    assert caught.value.least == 4 * 64


def test_annealing_goes_on_where_descents_end():
    made = read("rl1")
    budget = math.ceil(0.75 * Simulator(made).peak(range(100)))
    stopped = cheapest(made, budget, SearchContext(effort=0.02, stop=lambda: True))
    answer = cheapest(made, budget, SearchContext(effort=0.02))

    assert answer.how == f"{stopped.how}, then annealing"
    assert answer.extra < stopped.extra
    assert answer.peak == Simulator(made).peak(answer.schedule.order) <= budget


@pytest.mark.extra
def test_windows_go_on_where_annealing_ends():
    """Annealing is told to stop, after its first seed and the last; windows are not."""
    pytest.importorskip("ortools", reason="windows need the extra solver")
    made = read("rl1")
    budget = math.ceil(0.75 * Simulator(made).peak(range(100)))
    asked = iter((True, True))
    stopped = cheapest(made, budget, SearchContext(effort=0.05, solver="cp-sat", stop=lambda: True))
    context = SearchContext(effort=0.05, solver="cp-sat", stop=lambda: next(asked, False))
    answer = cheapest(made, budget, context)

    assert answer.how == f"{stopped.how}, then windows"
    assert answer.extra < stopped.extra
    assert answer.peak == Simulator(made).peak(answer.schedule.order) <= budget


def test_a_descent_below_the_budget_counts_where_none_at_the_budget_ends():
    made = read("rl3")
    given = range(len(made.steps))
    budget = math.ceil(0.8 * Simulator(made).peak(given))
    answer = cheapest(made, budget, SearchContext(effort=0.02), order=given)

    assert answer.how == "descent to the least peak"
    assert answer.peak <= budget


def test_work_never_rises_and_the_peak_never_falls_with_the_budget():
    made = mountain().program
    found = frontier(made, range(3 * 64, 8 * 64, 32), SearchContext(costs=COSTS, effort=0.1))

    assert [a.budget for a in found] == list(range(found[0].budget, 8 * 64, 32))
    for small, large in pairwise(found):
        assert large.extra <= small.extra
        assert large.peak >= small.peak
        assert small.peak <= small.budget


@pytest.mark.parametrize(
    ("name", "share", "percent"),
    [
        ("fcn8", 0.8, 0.1362),
        ("unet", 0.8, 1.984),
        ("mobilenet", 0.5, 1.636),
        ("resnet50", 0.9, 0.11),
        ("resnet50", 0.8, 0.28),
        ("resnet50", 0.5, 1.5),
    ],
)
def test_training_graphs_of_the_literature_are_planned_to_the_optimum(name, share, percent):
    made = read(name)
    budget = math.ceil(share * Simulator(made).peak(range(len(made.steps))))
    answer = cheapest(made, budget)

    assert answer.peak <= budget
    assert answer.percent(answer.extra) <= percent
    assert answer.percent(answer.gap) <= 1e-4

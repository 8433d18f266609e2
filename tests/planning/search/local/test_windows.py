from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from exhaustive import least_extra
from graphs_of_the_literature import read
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mountain import mountain
from poor_schedules import extra_of, poor
from programs import program
from random_steps import steps

from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.local.windows import windowed
from gradtool.planning.simulate import Simulator
from gradtool.program.overwriting import overwriting

pytestmark = pytest.mark.extra

pytest.importorskip("ortools", reason="windows need the extra solver")
EXAMPLES = {"deadline": None, "derandomize": True, "database": None}
POOR = (0, 1, 2, 3, 4, 0, 1, 2, 5, 0, 1, 6, 0, 7)


@settings(max_examples=50, **EXAMPLES)
@given(st.data())
def test_from_a_schedule_that_keeps_nothing_the_optimum_is_found(data):
    made = data.draw(steps(7))
    work = CostModel(made)
    all_of_it = frozenset(r for r in work.bytes if work.may_drop(r))
    weighed = work.weigh(dict.fromkeys(range(len(made.steps)), all_of_it))
    start = tuple(weighed.places)
    budget = data.draw(st.integers(weighed.peak, max(weighed.peak, work.weigh({}).peak - 1)))
    assume(weighed.extra)
    found = windowed(made, start, budget, SearchContext(effort=0.1))

    assert Simulator(made).peak(found.order) == found.peak <= budget
    assert found.extra == extra_of(made, found.order) == least_extra(work, budget)


@settings(max_examples=30, **EXAMPLES)
@given(st.data())
def test_a_start_above_the_budget_is_never_left_worse_nor_below_the_optimum(data):
    made = data.draw(steps(6))
    start = poor(data, made)
    peak = Simulator(made).peak(start)
    budget = data.draw(st.integers(peak // 2, peak))
    found = windowed(made, start, budget, SearchContext(effort=0.05))
    once = [s for s, step in enumerate(made.steps) if not step.recomputable]

    assert found.rank(budget) <= (max(peak - budget, 0), extra_of(made, start))
    assert [s for s in found.order if s in once] == once
    assert found.peak > budget or found.extra >= least_extra(CostModel(made), budget)


def test_a_start_above_the_budget_comes_below_it():
    """One after the other: b of 256 bytes beside x and s of 64 each, and then t of 64."""
    made = program(
        "a = Tanh x", "b = Tanh x", "s = Exp a", "t = Exp b", "y = Mul s t",
        outputs="y", sizes={"a": 64, "b": 64},
    )  # fmt: skip
    peak = Simulator(made).peak(range(5))
    found = windowed(made, range(5), peak - 64, SearchContext(costs=[1] * 5))

    assert (found.peak, found.extra) == (256 + 3 * 64, 0)


def test_a_parameter_is_read_before_it_is_overwritten():
    """Beside c, e of 256 bytes is above the budget; but n, which c needs, lies over w."""
    made = program(
        "h = Tanh x", "e = Exp w", "n = Sub w h", "c = Exp n", "d = Tanh c", "y = Mul d e",
        outputs="n", parameters="w", sizes={"c": 64, "e": 64}, in_place=True,
    )  # fmt: skip
    number = {v.name: i for i, v in enumerate(made.values)}
    stepping = overwriting(replace(made, state=MappingProxyType({number["w"]: number["n"]})))
    later, found = (
        windowed(m, range(6), Simulator(m).peak(range(6)) - 64, SearchContext(costs=[1] * 6))
        for m in (made, stepping)
    )

    assert later.order.index(1) > later.order.index(2)
    assert found.order.index(1) < found.order.index(2)
    assert found.order.count(1) == 1


def test_the_same_question_has_the_same_answer():
    work = mountain()
    budget = work.simulator.peak(POOR)
    one, other = (
        windowed(work.program, POOR, budget, SearchContext(costs=work.costs)) for _ in range(2)
    )

    assert one == other
    assert one.peak <= budget
    assert one.extra < sum(work.costs[s] for s in POOR) - work.total


def test_a_window_of_the_whole_program_that_is_proven_optimal_is_the_last():
    """Nothing has to run again but a or, in its place, the cheaper b."""
    work = mountain()
    found = windowed(work.program, POOR, 5 * 64, SearchContext(costs=work.costs))

    assert (found.extra, found.moves) == (least_extra(work, 5 * 64), 1)


def test_what_was_asked_in_vain_is_not_asked_again():
    """Nothing fits: only the two windows in which all steps move differ."""
    work = mountain()

    assert windowed(work.program, range(8), 64, SearchContext(costs=work.costs)).moves <= 4


def test_a_kind_of_window_ends_after_so_many_in_vain():
    """In a chain of 120 values the first, of 256 bytes, cannot stay beside the largest other."""
    lines = ["v0 = Tanh x", *(f"v{i} = Tanh v{i - 1}" for i in range(1, 120)), "y = Mul v119 v0"]
    made = program(*lines, outputs="y", sizes={"v0": 64, "v60": 32})
    order = (*range(120), 0, 120)
    found = windowed(made, order, Simulator(made).peak(order), SearchContext(costs=[1] * 121))

    assert (found.order, found.extra) == (order, 1)
    assert found.moves == 2 + 31


def test_nothing_is_tried_where_the_start_is_good_enough_or_the_search_is_stopped():
    made = read("rl1")
    peak = Simulator(made).peak(range(100))

    assert windowed(made, range(100), peak).moves == 0
    stopped = windowed(made, range(100), peak // 2, SearchContext(stop=lambda: True))
    assert stopped.order == tuple(range(100))


def test_a_search_that_is_stopped_ends_with_what_it_has():
    """Steps 1 and 91 run again without need, in windows of their own."""
    read = {1: "a", 20: "a", 90: "b", 110: "b"}
    lines = [f"v{i} = Mul v{i - 1} {read.get(i, f'v{i - 1}')}" for i in range(1, 120)]
    made = program(
        "v0 = Tanh x", "a = Tanh x", *lines[:89], "b = Tanh x", *lines[89:], outputs="v119"
    )  # fmt: skip
    order = (*range(21), 1, *range(21, 112), 91, *range(112, 122))
    budget, context = Simulator(made).peak(order), SearchContext(costs=(1,) * 122)
    asked = iter([False])
    stopped = windowed(made, order, budget, replace(context, stop=lambda: next(asked, True)))

    assert stopped.moves == 1
    assert stopped.extra > 0
    assert windowed(made, order, budget, context).extra == 0

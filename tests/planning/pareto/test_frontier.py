"""One frontier answers every question, and its answers never contradict each other."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest
from conftest import sampled, trials
from exhaustive import least_extra
from hypothesis import given, settings
from hypothesis import strategies as st
from mountains import chain, model, mountains
from native_calls import needs_library
from random_steps import steps

from gradtool.graph.specs import Spec
from gradtool.planning.pareto.budget_points import BudgetPoints, cheapest
from gradtool.planning.pareto.frontier import Frontier, peak_of
from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.work_bound import least_budget
from gradtool.program import Program, Step, Value

pytestmark = needs_library
EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


def packed(state):
    """Some bytes more than are alive, as if there were gaps."""
    return state.peak + 8 * (sum(i * p for i, p in enumerate(state.places)) % 23)


def frontier(drawn, effort=0.007, size=peak_of, **context):
    made, costs = drawn
    told = SearchContext(costs=tuple(costs), effort=effort, **context)
    return Frontier(BudgetPoints(CostModel(made, told.costs), told), size)


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", sampled([packed, peak_of]))
@settings(max_examples=trials(60), **EXAMPLES)
@given(st.data())
def test_more_memory_never_costs_more_work_whatever_was_asked_before(size, data):
    """Each budget is asked of a frontier of its own, as by commands of their own."""
    drawn = data.draw(mountains())
    one = frontier(drawn)
    budgets = sorted(
        data.draw(
            st.lists(st.integers(one.points.low, one.points.plain.peak), min_size=2, max_size=6)
        )
    )
    works = []
    for budget in budgets:
        found = frontier(drawn, size=size).within(budget)
        works.append(found.extra if found else None)
        assert not found or size(found) <= budget
    known = [work for work in works if work is not None]

    assert known == sorted(known, reverse=True)
    assert None not in works[len(works) - len(known) :]


@pytest.mark.parametrize("size", sampled([packed, peak_of]))
@settings(max_examples=trials(25), **EXAMPLES)
@given(st.data())
def test_a_slowdown_and_the_budget_that_it_reaches_agree(size, data):
    drawn = data.draw(mountains())
    asked = frontier(drawn, size=size)
    allowed = data.draw(st.integers(0, asked.points.work.total))
    best = asked.at_most(allowed)

    assert best.extra <= allowed
    within = frontier(drawn, size=size).within(size(best))
    assert within.extra <= best.extra


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", sampled([packed, peak_of]))
@settings(max_examples=trials(25), **EXAMPLES)
@given(st.data())
def test_more_work_never_costs_more_memory(size, data):
    drawn = data.draw(mountains())
    total = frontier(drawn).points.work.total
    shares = sorted(data.draw(st.lists(st.integers(0, total), min_size=2, max_size=5)))
    peaks = [size(frontier(drawn, size=size).at_most(share)) for share in shares]

    assert peaks == sorted(peaks, reverse=True)


@pytest.mark.exhaustive
@settings(max_examples=trials(25), **EXAMPLES)
@given(mountains(least=3, most=4), st.integers(0, 100))
def test_the_schedule_of_a_small_mountain_is_the_optimum(drawn, percent):
    asked, work = frontier(drawn, effort=0.2), model(drawn)
    budget = asked.points.low + (asked.points.plain.peak - asked.points.low) * percent // 100
    found = asked.within(budget)

    assert (found and found.extra) == least_extra(work, budget)
    if found:
        assert found.peak == work.simulator.peak([work.order[p] for p in found.places])
        assert found.extra == work.work_again(found.places)


@pytest.mark.exhaustive
@settings(max_examples=trials(40), **EXAMPLES)
@given(steps(5), st.integers(0, 100))
def test_no_schedule_is_better_than_the_optimum(made, percent):
    work = CostModel(made)
    asked = Frontier(BudgetPoints(work, SearchContext(effort=0.2)))
    budget = asked.points.low + (asked.points.plain.peak - asked.points.low) * percent // 100
    found, optimum = asked.within(budget), least_extra(work, budget)

    assert not found or found.extra >= optimum


@st.composite
def pools(draw):
    """A chain whose steps give a value and a mask, that may be a result and is read on, or back."""
    count = draw(st.integers(3, 6))
    spec = [Spec((draw(st.integers(1, 6)),), np.dtype(np.uint8)) for _ in range(3 * count)]
    values = [Value(f"v{i}", s, "activation") for i, s in enumerate(spec)]
    made = [((2 * i - 2,) if i else (), (2 * i, 2 * i + 1)) for i in range(count)]
    for k, i in enumerate(reversed(range(count))):
        above = 2 * count + k - 1 if k else 2 * i
        made.append(((above, 2 * i + 1), (2 * count + k,)))
    costs = [draw(st.integers(1, 5)) for _ in made]
    ran = tuple(
        Step(f"s{n}", "Node", reads, writes, MappingProxyType({}), flops=cost)
        for n, ((reads, writes), cost) in enumerate(zip(made, costs, strict=True))
    )
    results = {2 * i for i in range(count) if draw(st.booleans())}
    outputs = (*sorted(results), 3 * count - 1)
    return Program(tuple(values), ran, (), outputs, MappingProxyType({}), alignment=1)


@settings(max_examples=trials(150), **EXAMPLES)
@given(st.one_of(steps(9), pools()), st.integers(0, 3))
def test_every_schedule_of_the_frontier_can_run_and_takes_what_it_says(made, seed):
    points = BudgetPoints(CostModel(made), SearchContext(effort=0.02, seed=seed))

    for state in points.states:
        assert points.work.runs(state.places)
        assert state.peak == points.work.simulator.peak(state.places)
        assert state.extra == points.work.work_again(state.places)


@pytest.mark.parametrize("length", [3, 5, 8, 12])
def test_a_uniform_chain_is_brought_to_its_least_peak(length):
    """Two gradients and one activation: the others are computed again from the input."""
    found = frontier(chain(length), effort=1)

    assert (
        min(state.peak for state in found.points.states)
        == 3 * 64 + found.points.work.simulator.fixed
    )


def test_the_same_question_has_the_same_answer_and_another_seed_may_have_another():
    drawn = chain(12)
    budget = 6 * 64 + frontier(drawn).points.work.simulator.fixed

    assert frontier(drawn).within(budget) == frontier(drawn).within(budget)
    assert frontier(drawn, seed=7).within(budget).peak <= budget


def test_every_point_is_heard_of_and_an_end_leaves_what_is_known():
    made, costs = chain(10)
    heard = []
    context = SearchContext(costs=tuple(costs), stop=lambda: len(heard) == 3)
    asked = BudgetPoints(
        CostModel(made, context.costs),
        context,
        on_point=lambda done, most: heard.append((done, most)),
    )
    states = asked.states

    assert heard == [(1, 32), (2, 32), (3, 32), (32, 32)]
    assert cheapest(states, asked.plain.peak) == asked.plain


def test_recipes_that_fit_are_answers_too():
    made, costs = chain(6)
    known = frontier((made, costs), effort=1)
    best = min(known.points.states, key=lambda s: (s.peak, s.extra))
    context = SearchContext(costs=tuple(costs), effort=1e-6)
    asked = Frontier(BudgetPoints(CostModel(made, context.costs), context, recipes=[best.places]))

    assert asked.within(best.peak).extra <= best.extra
    assert asked.points.low == least_budget(asked.points.work)


def test_a_question_that_a_point_answers_looks_for_less_memory_than_the_answer_takes():
    """What packing wastes puts the answer above its point; all that is between takes more."""
    waste = 5

    def size(state):
        return state.peak + waste * bool(state.extra)

    asked = frontier(chain(12), size=size)
    on_points = (s for s in asked.points.states if s.extra and s.peak in asked.points.budgets)
    state = next(on_points)
    aims = spied(asked.points)

    assert asked.at_most(state.extra) == state
    assert aims
    assert max(aims) <= size(state)


def spied(points):
    """The budgets that questions between points aim at, as they are asked."""
    aims = []
    between = points.between

    def heard(budget, *rest):
        aims.append(budget)
        return between(budget, *rest)

    points.between = heard
    return aims

"""One ladder answers every question, and its answers never contradict each other."""

from __future__ import annotations

import pytest
from exhaustive import least_extra
from hypothesis import given, settings
from hypothesis import strategies as st
from mountains import chain, model, mountains

from gradtool.planning.ladder.rungs import Ladder, cheapest
from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.work_bound import least_budget

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


def ladder(drawn, effort=0.1, **context):
    made, costs = drawn
    told = SearchContext(costs=tuple(costs), effort=effort, **context)
    return Ladder(made, told, range(len(made.steps)))


@settings(max_examples=25, **EXAMPLES)
@given(st.data())
def test_more_memory_never_costs_more_work_whatever_was_asked_before(data):
    """Each budget is asked of a ladder of its own, as by commands of their own."""
    drawn = data.draw(mountains())
    one = ladder(drawn)
    budgets = sorted(
        data.draw(st.lists(st.integers(one.low, one.plain.peak), min_size=2, max_size=6))
    )
    works = []
    for budget in budgets:
        found = ladder(drawn).within(budget)
        works.append(found[0].extra if found else None)
        assert all(state.peak <= budget for state in found)
    known = [work for work in works if work is not None]

    assert known == sorted(known, reverse=True)
    assert None not in works[len(works) - len(known) :]


@settings(max_examples=25, **EXAMPLES)
@given(st.data())
def test_a_slowdown_and_the_budget_that_it_reaches_agree(data):
    drawn = data.draw(mountains())
    asked = ladder(drawn)
    allowed = data.draw(st.integers(0, asked.work.total))
    best = asked.at_most(allowed)[0]

    assert best.extra <= allowed
    within = ladder(drawn).within(best.peak)[0]
    assert within.extra <= best.extra


@settings(max_examples=25, **EXAMPLES)
@given(st.data())
def test_more_work_never_costs_more_memory(data):
    drawn = data.draw(mountains())
    total = ladder(drawn).work.total
    shares = sorted(data.draw(st.lists(st.integers(0, total), min_size=2, max_size=5)))
    peaks = [ladder(drawn).at_most(share)[0].peak for share in shares]

    assert peaks == sorted(peaks, reverse=True)


@settings(max_examples=25, **EXAMPLES)
@given(mountains(least=3, most=4), st.integers(0, 100))
def test_no_schedule_is_better_than_the_optimum_and_each_is_as_it_says(drawn, percent):
    asked, work = ladder(drawn, effort=1), model(drawn)
    budget = asked.low + (asked.plain.peak - asked.low) * percent // 100
    optimum = least_extra(work, budget)
    found = asked.within(budget)

    for state in found:
        assert state.peak == work.simulator.peak([work.order[p] for p in state.places])
        assert state.extra == work.work_again(state.places)
    if found:
        assert optimum is not None
        assert found[0].extra >= optimum


@pytest.mark.parametrize("length", [3, 5, 8, 12])
def test_a_uniform_chain_is_brought_to_its_least_peak(length):
    """Two gradients and one activation: the others are computed again from the input."""
    found = ladder(chain(length), effort=1)

    assert min(state.peak for state in found.states) == 3 * 64 + found.work.simulator.fixed


def test_the_same_question_has_the_same_answer_and_another_seed_may_have_another():
    drawn = chain(12)
    budget = 6 * 64 + ladder(drawn).work.simulator.fixed

    assert ladder(drawn).within(budget) == ladder(drawn).within(budget)
    assert ladder(drawn, seed=7).within(budget)[0].peak <= budget


def test_every_rung_is_heard_of_and_an_end_leaves_what_is_known():
    made, costs = chain(10)
    heard = []
    context = SearchContext(costs=tuple(costs), stop=lambda: len(heard) == 3)
    asked = Ladder(made, context, range(20), on_rung=lambda done, most: heard.append((done, most)))
    states = asked.states

    assert heard == [(1, 24), (2, 24), (3, 24)]
    assert cheapest(states, asked.plain.peak) == asked.plain


def test_recipes_that_fit_are_answers_too():
    made, costs = chain(6)
    known = ladder((made, costs), effort=1)
    best = min(known.states, key=lambda s: (s.peak, s.extra))
    context = SearchContext(costs=tuple(costs), effort=1e-6)
    asked = Ladder(made, context, range(12), recipes=[best.places])

    assert asked.within(best.peak)[0].extra <= best.extra
    assert asked.low == least_budget(asked.work)

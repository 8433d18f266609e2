"""What is proven of memory: never above a plan, never below what was known."""

import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from layered import layers, workload_of
from training_programs import training_programs

from gradtool.planning.search.context import SearchContext
from gradtool.workloads.budgets.budget_queries import Answers, work_of
from gradtool.workloads.budgets.search import raise_floor

EFFORT = 0.05


def answers(work):
    return Answers(work, context=SearchContext(effort=EFFORT))


@given(st.data())
@settings(max_examples=trials(10), deadline=None)
def test_no_plan_found_lies_below_the_floor_of_its_work(data):
    asked = answers(workload_of(data.draw(training_programs(most=6))))
    for allowed in (asked.total // 10, None):
        before = asked.known.least_of(allowed)
        raise_floor(asked, allowed, asked.at_most(allowed).plan.peak, EFFORT)
        assert asked.known.least_of(allowed) >= before

    for found in asked.curve():
        assert asked.known.least_of(work_of(found)) <= found.plan.peak


@pytest.mark.parametrize("share", [0, 0.1])
def test_the_floor_is_above_what_one_step_takes_where_work_is_short(share):
    asked = answers(layers(6))
    allowed = int(share * asked.total)
    reached = asked.at_most(allowed).plan.peak
    raise_floor(asked, allowed, reached, EFFORT)

    assert asked.known.least < asked.known.least_of(allowed) <= reached


def test_less_work_needs_no_less_memory():
    asked = answers(layers(6))
    shares = (0, asked.total // 20, asked.total // 5)
    for allowed in shares:
        raise_floor(asked, allowed, asked.at_most(allowed).plan.peak, EFFORT)
    floors = [asked.known.least_of(a) for a in (*shares, None)]

    assert floors == sorted(floors, reverse=True)

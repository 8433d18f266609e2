"""Answers about one training graph do not contradict each other, whoever asks and in any order."""

from pathlib import Path

import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from layered import layers, workload_of
from shared import SMALL
from training_programs import training_programs

import gradtool as gt
from gradtool.io.dims import symbols
from gradtool.planning.search.context import SearchContext
from gradtool.workloads.budgets.budget_queries import Answers, work_of
from gradtool.workloads.budgets.frontier import frontier
from gradtool.workloads.budgets.search import Search
from gradtool.workloads.plans import workload

EFFORT = 0.02
ROOT = Path(__file__).resolve().parents[3]
ZOO = [pytest.param(p, marks=pytest.mark.shared) for p in sorted(SMALL.glob("*/model.onnx"))]
MODELS = [*sorted(ROOT.glob("samples/*.onnx")), *ZOO]


def answers(work):
    """A frontier of its own, as a command has."""
    return Answers(work, context=SearchContext(effort=EFFORT))


def agree(make, shares, percents, effort=EFFORT):
    """More memory never costs more work, more work never more memory, whichever command asks.

    Each question is asked of a training graph that `make` made for it alone.
    """

    def fresh():
        return Answers(make(), context=SearchContext(effort=effort))

    kept, total = fresh().kept.plan.peak, fresh().total
    found = []
    for share in shares:
        found.append(fresh().at_most(total * share // 100))
        assert work_of(found[-1]) <= total * share // 100
    found += frontier(make(), 5, Search(effort))
    for each in list(found):
        within = fresh().within(each.plan.peak)
        assert work_of(within) <= work_of(each)
        found.append(within)
    for percent in percents:
        within = fresh().within(kept * percent // 100)
        if within is not None:
            assert within.plan.peak <= kept * percent // 100
            found.append(within)

    for budget in {each.plan.peak: None for each in found}:
        asked = fresh().within(budget)
        assert all(work_of(asked) <= work_of(o) for o in found if o.plan.peak <= budget)


def drawn(data):
    """A random training program, and what is asked of it."""
    program = data.draw(training_programs(most=6))
    shares = data.draw(st.lists(st.integers(0, 100), min_size=1, max_size=3))
    percents = data.draw(st.lists(st.integers(30, 100), max_size=3))
    return lambda: workload_of(program), shares, percents


@given(st.data())
@settings(max_examples=trials(30), deadline=None)
def test_budgets_slowdowns_and_the_frontier_agree(data):
    agree(*drawn(data))


@pytest.mark.slow
@given(st.data())
@settings(max_examples=200, deadline=None)
def test_they_agree_on_many_random_programs(data):
    agree(*drawn(data))


@pytest.mark.slow
@pytest.mark.parametrize("path", MODELS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_they_agree_on_models(path):
    model = gt.grad(gt.load(path)).model
    sizes = dict.fromkeys(symbols(model), 4)

    agree(lambda: workload(model, sizes), (2, 20), (60,), effort=0.1)


def test_what_keeps_everything_answers_where_it_fits():
    asked = answers(layers())

    assert asked.within(asked.kept.plan.peak).schedule == asked.kept.schedule
    assert asked.within(asked.known.least - 1) is None


def test_what_is_proven_of_a_budget_stands_beside_its_plan():
    asked = answers(layers(6))
    budget = asked.at_most(asked.total // 10).plan.peak
    asked.prove(budget, 0.1)
    found = asked.within(budget)

    assert 0 < found.proof.bound <= found.proof.extra
    assert found.proof.which_bound != "none"

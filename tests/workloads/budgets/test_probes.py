"""The planner asked about one training graph: arenas fit, bounds hold for what they are of."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layered import layers, workload_of
from training_programs import training_programs

from gradtool.errors import OverBudget
from gradtool.planning.search.context import SearchContext
from gradtool.workloads.budgets import probes as module
from gradtool.workloads.budgets.probes import Bound, Probes, work_of

EFFORT = 0.05


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_the_arena_of_an_answer_fits_and_its_bound_is_below_it(data):
    work = workload_of(data.draw(training_programs(most=8)))
    probes = Probes(work)
    budget = data.draw(st.integers(0, work.kept.peak))

    found = probes.ask(budget, EFFORT)

    if found is not None:
        assert found.plan.peak <= budget
        assert probes.least <= found.plan.peak
        assert 0 <= found.proof.bound <= found.proof.extra == work_of(found)
        assert found.proof.budget == budget


def test_keeping_everything_costs_nothing():
    work = layers()
    found = Probes(work).ask(work.kept.peak, EFFORT)

    assert found.plan == dataclasses.replace(work.kept, name="optimal")
    assert (found.proof.extra, found.proof.gap, found.proof.how) == (0, 0, "everything is kept")


def test_nothing_fits_below_what_a_step_takes_by_itself():
    probes = Probes(layers())

    assert probes.ask(probes.least - 1, EFFORT) is None
    assert len(probes.found) == 1


def test_later_questions_profit_from_earlier_plans():
    work = layers()
    probes = Probes(work)
    middle = (probes.least + work.kept.peak) // 2
    tight = probes.ask(middle, EFFORT)
    loose = probes.known(middle + 64)

    assert tight is not None
    assert work_of(loose) <= work_of(tight)


def test_a_search_in_vain_leaves_the_lowest_plan_that_it_found(monkeypatch):
    work = layers()
    known = Probes(work)
    known.cook()
    lowest = min(known.found, key=lambda p: p.plan.peak)
    order, reached = lowest.schedule.order, lowest.plan.peak

    def in_vain(_program, budget, _context, **_):
        raise OverBudget(budget, reached, 0, proven=False, order=order)

    monkeypatch.setattr(module, "cheapest", in_vain)
    asked = Probes(work)
    monkeypatch.setattr(asked, "cook", lambda: None)

    assert asked.ask(reached - 64, EFFORT) is None
    assert asked.reached(None) == reached
    assert asked.missed(None, EFFORT) == reached - 64
    assert asked.missed(None, 2 * EFFORT) == -1
    asked.ask(reached - 128, EFFORT)
    assert len(asked.found) == 2


def test_what_a_search_proves_impossible_is_no_longer_asked_for(monkeypatch):
    work, asked = layers(), []

    def impossible(_program, budget, _context, **_):
        asked.append(budget)
        raise OverBudget(budget, budget, 0, proven=True)

    monkeypatch.setattr(module, "cheapest", impossible)
    found = Probes(work)
    middle = (found.least + work.kept.peak) // 2
    for budget in (middle, middle - 64, middle):
        found.ask(budget, EFFORT)

    assert asked == [middle]
    assert found.least_of(None) == middle + 1


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_what_is_proven_of_a_budget_holds_for_every_plan_within_it(data):
    work = workload_of(data.draw(training_programs(most=8)))
    probes = Probes(work)
    budget = data.draw(st.integers(0, work.kept.peak))
    probes.prove(budget, EFFORT)
    probes.ask(budget, EFFORT)
    probes.cook()

    for plan in probes.found:
        assert probes.least_of(work_of(plan)) <= plan.plan.peak


def test_a_bound_holds_for_every_smaller_budget_and_for_no_larger_one():
    work = layers()
    probes = Probes(work)
    middle = (probes.least + work.kept.peak) // 2
    probes.ask(middle, EFFORT)
    extra = min(work_of(p) for p in probes.found if p.plan.peak <= middle)
    probes.bounds = [Bound(middle, 1, "made up"), Bound(middle - 64, extra, "stronger")]

    assert (probes.known(middle).proof.bound, probes.known(middle).proof.which_bound) == (
        1, "made up",
    )  # fmt: skip
    assert probes.least_of(0) == middle + 1
    assert probes.least_of(extra) == probes.least_of(None) == probes.least


def test_recipes_are_cooked_once_and_priced():
    work = layers()
    probes = Probes(work)
    probes.cook()
    count = len(probes.found)
    probes.cook()

    assert count == len(probes.found) == 4
    for found in probes.found:
        again = [work.program.steps[s].flops for s in found.schedule.recomputed]
        assert found.proof.extra == sum(again)


def test_a_step_of_unknown_cost_never_runs_again():
    before = layers().program
    unknown = [dataclasses.replace(s, flops=None) for s in before.steps]
    probes = Probes(workload_of(dataclasses.replace(before, steps=tuple(unknown))))
    probes.cook()

    assert all(not found.schedule.recomputed for found in probes.found)


@pytest.mark.parametrize("seed", [0, 3])
def test_a_seed_gives_the_same_plan_twice(seed):
    budget, context = layers().kept.peak * 3 // 4, SearchContext(seed=seed)
    one, two = (Probes(layers(), context=context).ask(budget, 0.2) for _ in "12")

    assert one == two

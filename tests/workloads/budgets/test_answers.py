"""Answers about one training graph do not contradict each other, whoever asks and in any order."""

from hypothesis import given, settings
from hypothesis import strategies as st
from layered import layers, workload_of
from training_programs import training_programs

from gradtool.planning.search.context import SearchContext
from gradtool.workloads.budgets.answers import Answers, work_of
from gradtool.workloads.budgets.frontier import frontier
from gradtool.workloads.budgets.search import Search

EFFORT = 0.02


def answers(work):
    """A ladder of its own, as a command has."""
    return Answers(work, context=SearchContext(effort=EFFORT))


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_budgets_slowdowns_and_the_frontier_agree(data):
    """More memory never costs more work, more work never more memory, whichever command asks."""
    program = data.draw(training_programs(most=6))
    kept = workload_of(program).kept.peak
    total = answers(workload_of(program)).total
    found = []
    for share in data.draw(st.lists(st.integers(0, 100), min_size=1, max_size=3)):
        found.append(answers(workload_of(program)).at_most(total * share // 100))
        assert work_of(found[-1]) <= total * share // 100
    found += frontier(workload_of(program), 5, Search(EFFORT))
    for each in list(found):
        within = answers(workload_of(program)).within(each.plan.peak)
        assert work_of(within) <= work_of(each)
        found.append(within)
    for percent in data.draw(st.lists(st.integers(30, 100), max_size=3)):
        within = answers(workload_of(program)).within(kept * percent // 100)
        if within is not None:
            assert within.plan.peak <= kept * percent // 100
            found.append(within)

    for each in found:
        asked = answers(workload_of(program)).within(each.plan.peak)
        assert all(work_of(asked) <= work_of(o) for o in found if o.plan.peak <= each.plan.peak)


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

"""What a cut runs again is a schedule that can run, with each of these steps once more."""

from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from random_steps import steps

from gradtool.planning.pareto.initial_solutions import run_again
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.knapsack import fill
from gradtool.planning.search.work_bound import instants

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


@settings(max_examples=trials(150), **EXAMPLES)
@given(steps(9), st.integers(0, 100))
def test_what_a_cut_runs_again_runs_once_more_and_nothing_is_missing(made, percent):
    work = CostModel(made)
    for instant in instants(work, range(len(work.reads))):
        budget = work.simulator.peak(work.order) * percent // 100
        ends = instant.breakpoint(instant.capacity(budget))
        if ends is None:
            continue
        again = fill(work, ends, instant.capacity(budget)).again
        places = run_again(work, instant.at, again)

        assert work.runs(places)
        assert places[: instant.at + 1] == list(range(instant.at + 1))
        assert work.work_again(places) <= sum(work.costs[p] for p in again)
        assert max((places.count(p) for p in places), default=0) <= 2

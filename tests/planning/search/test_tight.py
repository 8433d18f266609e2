from __future__ import annotations

from mountain import mountain
from training_programs import chain

from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.tight import repaired


def test_the_schedule_is_never_worse_than_the_start():
    """A start that costs more than needed is improved, a good one is kept."""
    dear, cheap = [0, 1, 2, 3, 4, 2, 5, 1, 6, 0, 7], [0, 1, 2, 3, 4, 5, 1, 6, 7]
    found = [repaired(mountain(), 5 * 64, s, 10**5, enough=1, seed=0) for s in (dear, cheap)]

    assert [line.extra for line in found] == [1, 1]
    assert all(line.peak <= 5 * 64 for line in found)


def test_without_any_schedule_within_the_budget_the_lowest_is_told():
    line = repaired(mountain(), 3 * 64, range(8), 10**5, enough=0, seed=0)

    assert line.peak == 4 * 64


def test_a_long_chain_is_cut_into_segments_where_repairs_would_take_too_long():
    """Of 200 values a step of this chain keeps 60 at most; the 140 others run again once."""
    made = chain(100)
    work = CostModel(made, [1] * len(made.steps))
    line = repaired(work, 60 * 64, range(len(made.steps)), 50_000, enough=0, seed=0)

    assert line.peak <= 60 * 64
    assert 140 <= line.extra <= 150


def test_segments_in_which_a_step_may_not_run_again_are_no_start():
    """Half the steps have no known cost: what is told runs none of them twice."""
    made = chain(20)
    costs = [None if p % 2 else 1 for p in range(len(made.steps))]
    line = repaired(CostModel(made, costs), 8 * 64, range(len(made.steps)), 10**5, enough=0, seed=0)

    again = [p for p, first in zip(line.places, line.first, strict=True) if not first]
    assert all(costs[p] is not None for p in again)

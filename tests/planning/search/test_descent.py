from __future__ import annotations

from hypothesis import given, settings
from mountain import mountain
from random_steps import steps

from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.descent import Descent
from gradtool.planning.search.work_bound import least_budget

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


def test_a_budget_below_the_peak_is_met_by_the_cheapest_drop():
    """x, a, b, c, d, e are alive at the peak; b is one of the cheap ones."""
    work = mountain()
    plain = work.weigh({})
    search = Descent(work, plain.peak - 64, 10**5)
    found = search.fit(search.weigh({}))

    assert plain.peak == 6 * 64
    assert found.weighed.peak == 5 * 64
    assert found.extra == 1


def test_trimming_takes_back_what_was_not_needed():
    work = mountain()
    search = Descent(work, 5 * 64, 10**5)
    a, b = work.writes[0][0], work.writes[1][0]
    found = search.weigh({2: frozenset({a, b})})

    assert (found.extra, search.trim(found).extra) == (10, 1)


def test_a_budget_that_no_drop_reaches_finds_nothing():
    work = mountain()
    search = Descent(work, least_budget(work) - 1, 10**5)

    assert search.fit(search.weigh({})) is None
    assert search.lowest.weighed.peak >= least_budget(work)


def test_the_limit_ends_the_search():
    work = mountain()
    search = Descent(work, 5 * 64, 1)

    assert search.fit(search.weigh({})) is None


def test_a_search_that_is_not_worth_it_ends():
    work = mountain()
    search = Descent(work, 5 * 64, 10**5)

    assert search.fit(search.weigh({}), worth=0) is None


@settings(max_examples=60, **EXAMPLES)
@given(steps(8))
def test_kicks_never_make_it_worse_and_depend_on_the_seed_alone(made):
    work = CostModel(made)
    budget = (least_budget(work) + work.weigh({}).peak) // 2
    search = Descent(work, budget, 10**4)
    found = search.fit(search.weigh({}))
    if found is None:
        return
    left = search.left
    once = search.kick(found, 0)
    search.left = left
    again = search.kick(found, 0)

    assert once.extra <= found.extra
    assert once.weighed.peak <= budget
    assert once == again

from __future__ import annotations

from fractions import Fraction

import pytest
from exhaustive import least_extra
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mountain import mountain
from programs import program
from random_steps import steps

from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.repair import Repair
from gradtool.planning.search.work_bound import least_budget
from gradtool.planning.simulate import Simulator

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}
FREE = 10**6


def chain(length):
    """The gradient of a chain of steps of one size, each read on the way back."""
    forward = [f"a{i} = Tanh {f'a{i - 1}' if i else 'x'}" for i in range(length)]
    backward = [f"g{i} = Mul {f'g{i + 1}' if i + 1 < length else f'a{i}'} a{i}"
                for i in reversed(range(length))]  # fmt: skip
    return CostModel(program(*forward, *backward, outputs="g0"), [1] * 2 * length)


@st.composite
def mountains(draw):
    """Values of several sizes, each read again on the way back, where each may be read twice."""
    count = draw(st.integers(3, 4))
    names = [f"a{i}" for i in range(count)] + [f"g{i}" for i in range(count)]
    forward = [f"a{i} = Tanh {f'a{i - 1}' if i else 'x'}" for i in range(count)]
    backward = []
    for i in reversed(range(count)):
        above = f"g{i + 1}" if i + 1 < count else f"a{i}"
        backward.append(f"g{i} = Mul {above} a{max(i - draw(st.integers(0, 1)), 0)}")
    sizes = {name: 16 * draw(st.integers(1, 4)) for name in names}
    made = program(*forward, *backward, outputs="g0", sizes=sizes)
    return CostModel(made, [draw(st.integers(1, 5)) for _ in made.steps])


def plain(search):
    return search.weigh(range(len(search.work.reads)))


def test_the_cheapest_edit_comes_first():
    search = Repair(mountain(), 5 * 64, FREE)
    found = search.fit(plain(search))

    assert (found.peak, found.extra) == (5 * 64, 1)


@pytest.mark.parametrize("length", [3, 5, 8, 12])
def test_a_uniform_chain_is_brought_to_its_least_peak(length):
    """Two gradients and one activation: the others are computed again from the input."""
    work = chain(length)
    search = Repair(work, 3 * 64 + work.simulator.fixed, FREE)

    assert search.fit(plain(search)).peak == search.budget == least_budget(work)


@settings(max_examples=80, **EXAMPLES)
@given(st.data())
def test_what_fits_is_within_the_budget_and_no_better_than_the_optimum(data):
    made = data.draw(steps(7))
    work = CostModel(made)
    least, kept = least_budget(work), work.weigh({}).peak
    assume(least < kept)
    search = Repair(work, data.draw(st.integers(least, kept - 1)), FREE)
    found = search.fit(plain(search))
    if found is not None:
        trimmed = search.trim(found)

        assert Simulator(made).peak(trimmed.places) == trimmed.peak <= search.budget
        assert least_extra(work, search.budget) <= trimmed.extra <= found.extra


def test_it_reaches_the_least_peak_of_nearly_every_program():
    """As exhaustive search finds it, where recompute lowers the peak at all."""
    reached = []

    @settings(max_examples=60, **EXAMPLES)
    @given(mountains())
    def count(work):
        kept = work.weigh({}).peak
        budgets = range(least_budget(work), kept, 64)
        lowest = next((b for b in budgets if least_extra(work, b) is not None), kept)
        if lowest < kept:
            search = Repair(work, lowest, FREE)
            search.fit(plain(search))
            reached.append(search.lowest.peak == lowest)

    count()
    assert len(reached) > 20
    assert sum(reached) >= 0.95 * len(reached)


def test_trimming_takes_back_what_was_not_needed():
    search = Repair(mountain(), 5 * 64, FREE)
    found = search.weigh([0, 1, 2, 3, 4, 2, 5, 1, 6, 0, 7])

    assert (found.extra, search.trim(found).extra) == (11, 1)


def test_kicks_are_never_worse_and_depend_on_the_seed_alone():
    def kicked(seed):
        search = Repair(chain(8), 5 * 64 + 64, 20_000)
        found = search.fit(plain(search))
        best = search.kick(found, seed)
        return found.extra, best.extra, best.places

    before, after, _ = kicked(1)

    assert after <= before
    assert kicked(1) == kicked(1)


def test_the_limit_ends_the_search():
    search = Repair(mountain(), 5 * 64, 1)

    assert search.fit(plain(search)) is None


def test_a_repair_that_is_not_worth_it_ends():
    search = Repair(mountain(), 5 * 64, FREE)

    assert search.fit(plain(search), worth=Fraction(0)) is None

from __future__ import annotations

import math

import pytest
from exhaustive import least_extra
from graphs_of_the_literature import read
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import orders, programs
from random_steps import steps

from gradtool.planning.instances import program_of
from gradtool.planning.schedule import Schedule, replay
from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.local import compiled, held, memory, moves, search
from gradtool.planning.search.local.anneal import Polished, polish
from gradtool.planning.search.local.compiled import Annealer, rolls
from gradtool.planning.simulate import Simulator

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}
NAMES = memory


def begun(made, order, budget, seed=0):
    """A memory that counts a schedule."""
    costs = [s.flops for s in made.steps]
    m = memory.memory(Simulator(made), order, costs, budget, seed=seed)
    held.begin(m)
    return m


def order_of(m):
    begin = m[NAMES.ORDER]
    return [i >> NAMES.BITS for i in m[begin : begin + m[NAMES.LENGTH] - 1]]


def profile_of(m):
    return [m[m[NAMES.GAP] + p] + m[m[NAMES.OWN] + p] for p in range(m[NAMES.LENGTH] - 1)]


def check(m, made, budget):
    simulator, order = Simulator(made), order_of(m)
    profile = simulator.profile(order)
    costs = [s.flops or 0 for s in made.steps]

    end = simulator.fixed + sum(simulator.bytes[r] for r in simulator.live_out)

    assert [live + simulator.fixed for live in profile_of(m)] == profile
    assert m[NAMES.EXCESS] == sum(max(live - budget, 0) for live in [*profile, end])
    assert m[NAMES.EXTRA] == sum(costs[s] for s in order) - sum(costs)


@settings(max_examples=100, **EXAMPLES)
@given(st.data())
def test_a_new_memory_counts_what_the_simulator_says(data):
    made = data.draw(programs())
    order = data.draw(orders(made.steps))

    check(begun(made, order, 100), made, 100)


@settings(max_examples=60, **EXAMPLES)
@given(st.data())
def test_after_any_moves_the_memory_counts_what_the_simulator_says(data):
    made = data.draw(st.one_of(programs(), steps(8)))
    budget = data.draw(st.integers(1, Simulator(made).peak(range(len(made.steps)))))
    m = begun(made, range(len(made.steps)), budget, seed=data.draw(st.integers(0, 99)))
    for _ in range(15):
        search.anneal(m, rolls(), 3.0, 1.0, 5)
        check(m, made, budget)


@settings(max_examples=40, **EXAMPLES)
@given(st.data())
def test_a_move_taken_back_leaves_nothing_behind(data):
    made = data.draw(st.one_of(programs(), steps(8)))
    m = begun(made, range(len(made.steps)), 50, seed=data.draw(st.integers(0, 99)))
    search.anneal(m, rolls(), 1e9, 0.0, 30)
    for _ in range(10):
        m[NAMES.LAST_EXTRA], m[NAMES.LAST_EXCESS] = m[NAMES.EXTRA], m[NAMES.EXCESS]
        before = order_of(m), profile_of(m), m[NAMES.EXTRA], m[NAMES.EXCESS], m[NAMES.MULTIS]
        search.propose(m, 0.0, 1e9)
        moves.take_back(m)

        assert before == (
            order_of(m), profile_of(m), m[NAMES.EXTRA], m[NAMES.EXCESS], m[NAMES.MULTIS]
        )  # fmt: skip


@settings(max_examples=40, **EXAMPLES)
@given(st.data())
def test_no_polished_schedule_is_worse_than_its_start_nor_better_than_the_optimum(data):
    made = data.draw(steps(6))
    plain = range(len(made.steps))
    peak = Simulator(made).peak(plain)
    budget = data.draw(st.integers(1, peak))
    found = polish(
        made,
        plain,
        budget,
        SearchContext(effort=0.0001, seed=data.draw(st.integers(0, 9))),
        fast=False,
    )
    replay(made, Schedule.of(found.order))
    once = [i for i, s in enumerate(made.steps) if not s.recomputable]
    optimum = least_extra(CostModel(made), budget)

    assert found.peak == Simulator(made).peak(found.order) <= max(peak, budget)
    assert [s for s in found.order if s in once] == once
    assert found.peak > budget or found.extra >= optimum


@settings(max_examples=20, **EXAMPLES)
@given(st.data())
def test_polishing_a_polished_schedule_makes_it_no_worse(data):
    made = data.draw(steps(7))
    budget = data.draw(st.integers(1, Simulator(made).peak(range(len(made.steps)))))
    first = polish(made, range(len(made.steps)), budget, SearchContext(effort=0.0001), fast=False)
    again = polish(made, first.order, budget, SearchContext(effort=0.0001, seed=1), fast=False)

    assert max(again.peak - budget, 0) <= max(first.peak - budget, 0)
    assert again.peak > budget or first.peak > budget or again.extra <= first.extra


@pytest.mark.extra
def test_compiled_moves_are_the_same_moves():
    pytest.importorskip("numba")
    made = read("rl1")
    budget = Simulator(made).peak(range(100)) * 7 // 10
    slow, fast = (
        polish(made, range(100), budget, SearchContext(effort=0.001), fast=fast)
        for fast in (False, True)
    )

    assert slow == fast
    assert slow.order != tuple(range(100))


def test_cheap_steps_run_again_and_dear_ones_do_not():
    made = read("rl1")
    peak = Simulator(made).peak(range(100))
    found = polish(made, range(100), math.ceil(0.8 * peak), SearchContext(effort=0.002), fast=False)

    assert found.peak <= 0.8 * peak + 1
    assert found.extra <= 0.02 * sum(s.flops for s in made.steps)


def test_the_search_ends_where_nothing_is_left_to_gain():
    made = read("rl1")
    peak = Simulator(made).peak(range(100))

    assert polish(made, range(100), peak, fast=False).moves == 0


def test_a_search_that_is_stopped_gives_the_best_so_far():
    made = read("rl1")
    peak = Simulator(made).peak(range(100))
    calls = iter([False] * 3 + [True])
    found = polish(made, range(100), peak // 2, SearchContext(stop=lambda: next(calls)), fast=False)

    assert found.moves == 3 * 2000
    assert found.peak < peak


def test_a_step_of_unknown_cost_never_runs_again():
    made = read("rl1")
    costs = [None] * 100
    found = polish(made, range(100), 30000, SearchContext(costs=costs, effort=0.0001), fast=False)

    assert sorted(found.order) == list(range(100))


def test_a_start_with_more_repeats_than_slots_comes_back_as_it_is():
    readers = range(1, memory.SLOTS + 2)
    made = program_of([{"bytes": 1, "cost": 1}] * (len(readers) + 1), [(0, r) for r in readers])
    start = [s for reader in readers for s in (0, reader)]

    assert polish(made, start, 1, fast=False) == Polished(tuple(start), 2, len(readers) - 1, 0)


def test_the_rolls_are_exponential():
    assert compiled.rolls()[0] > compiled.rolls()[-1] > 0
    assert abs(sum(rolls()) / len(rolls()) - 1) < 1e-3


def test_an_annealer_knows_its_current_and_best_schedule():
    made = read("rl1")
    peak = Simulator(made).peak(range(100))
    costs = [s.flops for s in made.steps]
    annealer = Annealer(memory.memory(Simulator(made), range(100), costs, peak, seed=0), fast=False)

    assert annealer.current() == annealer.best() == tuple(range(100))
    assert annealer.best_extra == 0

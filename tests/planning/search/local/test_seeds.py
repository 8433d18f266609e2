from __future__ import annotations

import math
from dataclasses import replace

import pytest
from graphs_of_the_literature import read
from programs import program

from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.local.anneal import polish
from gradtool.planning.search.local.compiled import available
from gradtool.planning.search.local.seeds import annealed, compiles
from gradtool.planning.simulate import Simulator

CONTEXT = SearchContext(effort=0.1)
ASK = {"enough": 0, "fast": False}


def rl1():
    made = read("rl1")
    return made, math.ceil(0.8 * Simulator(made).peak(range(100)))


def test_the_best_seed_counts():
    made, budget = rl1()
    found = annealed(made, range(100), budget, CONTEXT, **ASK)
    moves = 0.1 * 20_000 / 2 / 12_000_000
    each = [
        polish(made, range(100), budget, SearchContext(effort=moves, seed=s), fast=False)
        for s in (0, 1)
    ]

    assert found == min(each, key=lambda p: p.rank(budget))
    assert each[0].order != each[1].order


def test_nothing_is_tried_where_the_start_is_good_enough():
    made, _ = rl1()
    found = annealed(made, range(100), Simulator(made).peak(range(100)), CONTEXT, **ASK)

    assert (found.order, found.moves) == (tuple(range(100)), 0)


def test_a_search_that_is_stopped_gives_its_start():
    made, budget = rl1()
    found = annealed(made, range(100), budget, replace(CONTEXT, stop=lambda: True), **ASK)

    assert (found.order, found.moves) == (tuple(range(100)), 0)


def test_programs_of_many_steps_are_not_annealed_by_interpreted_moves():
    lines = ["v0 = Tanh x", *(f"v{i} = Tanh v{i - 1}" for i in range(1, 501))]
    made = program(*lines, outputs="v500")

    assert annealed(made, range(501), 100, CONTEXT, **ASK) is None


@pytest.mark.extra
@pytest.mark.parametrize(
    ("solver", "effort", "expected"),
    [("auto", 1, False), ("native", 9, False), ("auto", 2, True), ("compiled", 0.1, True)],
)
def test_up_to_effort_1_nothing_depends_on_what_is_installed(solver, effort, expected):
    assert compiles(SearchContext(solver=solver, effort=effort)) == (expected and available())

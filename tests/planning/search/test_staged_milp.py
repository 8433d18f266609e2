from __future__ import annotations

import pytest
from programs import program

from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.staged_milp import Stages
from gradtool.planning.search.work_bound import instants


def chain():
    """While d runs, a (work 10) and b (work 1) of 64 bytes are needed later; x, c, d take 192."""
    made = program(
        "a = Tanh x", "b = Exp a", "c = Exp b", "d = Exp c", "e = Mul d b", "f = Mul e a",
        outputs="f",
    )  # fmt: skip
    return CostModel(made, [10, 1, 1, 1, 1, 1])


@pytest.mark.parametrize(("room", "work"), [(128, 0), (127, 1), (64, 1), (63, 11), (0, 11)])
def test_one_instant_keeps_whole_storages(room, work):
    """b needs a: with room for neither both run again."""
    problem = chain()
    solved = Stages(problem, instants(problem, [3]), 192 + room).solve(10)

    assert solved.bound == pytest.approx(work, abs=1e-5)


def test_the_solution_says_what_is_kept():
    problem = chain()
    solved = Stages(problem, instants(problem, [3]), 192 + 64).solve(10)
    a, b = problem.writes[0][0], problem.writes[1][0]

    assert a in solved.kept[0]
    assert b not in solved.kept[0]


def test_several_instants_are_no_weaker_than_each_of_them():
    problem = chain()
    found = instants(problem, [2, 3, 4])
    together = Stages(problem, found, 192 + 64).solve(10).bound

    for instant in found:
        assert Stages(problem, [instant], 192 + 64).solve(10).bound <= together + 1e-5
    assert 0 < Stages(problem, found, 192 + 64).relaxed() <= together + 1e-5


def test_no_solution_means_that_nothing_fits():
    """a cannot run again and must be kept: 64 bytes more than what the step itself takes."""
    problem = CostModel(chain().program, [None, 1, 1, 1, 1, 1])

    assert Stages(problem, instants(problem, [3]), 192 + 63).solve(10) is None
    assert Stages(problem, instants(problem, [3]), 192 + 64).solve(10) is not None

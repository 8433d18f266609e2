from __future__ import annotations

from programs import program

from gradtool.planning.search.cost_model import CostModel


def test_a_step_of_unknown_cost_is_never_dropped():
    before = program("h = Tanh x", "y = Exp h", outputs="y")
    work = CostModel(before, [None, 1])

    assert not work.may_drop(work.writes[0][0])


def test_an_output_is_never_dropped():
    before = program("h = Tanh x", "y = Exp h", outputs="h y")
    work = CostModel(before, [1, 1])

    assert not work.may_drop(work.writes[0][0])


def test_a_base_order_of_its_own_is_kept():
    before = program("a = Tanh x", "b = Exp x", "y = Mul a b", outputs="y")
    work = CostModel(before, [1, 1, 1], order=(1, 0, 2))

    assert work.schedule(range(3)).order == (1, 0, 2)


def test_a_schedule_runs_if_all_is_there_and_only_what_may_runs_again():
    before = program("a = Tanh x", "b = Exp a", "y = Mul a b", outputs="y")
    work = CostModel(before, [1, None, 1])

    assert work.runs([0, 1, 2])
    assert work.runs([0, 1, 0, 2])
    assert not work.runs([1, 0, 2])
    assert not work.runs([0, 1, 1, 2])
    assert not work.runs([0, 1])

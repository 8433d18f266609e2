from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from programs import program
from random_programs import orders, programs
from random_steps import steps

from gradtool.planning.schedule import Schedule, pruned
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.timeline import Timeline

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


@settings(max_examples=200, **EXAMPLES)
@given(st.data())
def test_a_timeline_is_what_the_simulator_says_of_the_schedule(data):
    before = data.draw(st.one_of(programs(), steps(8)))
    work = CostModel(before, [1] * len(before.steps))
    order = data.draw(orders(before.steps))
    line = Timeline(work, order)

    assert line.places == list(pruned(before, Schedule.of(order)).order)
    assert line.profile.tolist() == work.simulator.profile(line.places)
    assert line.extra == len(line.places) - len(before.steps)


def test_each_instance_of_a_storage_has_a_life_of_its_own():
    made = program("h = Tanh x", "a = Exp h", "b = Exp a", "y = Mul b h", outputs="y")
    work = CostModel(made, [5, 1, 1, 0])
    line = Timeline(work, [0, 1, 2, 0, 3])
    h, y = work.writes[0][0], work.writes[3][0]

    assert (line.lives[h], line.lives[y]) == ([[0, 1], [3, 4]], [[4]])
    assert (line.life(h, 2), line.life(h, 4)) == ([0, 1], [3, 4])
    assert line.before(h, 4) == 3
    assert line.first == [True, True, True, False, True]
    assert line.repeats() == [3]


def test_what_runs_again_for_free_is_no_repeat():
    made = program("h = Tanh x", "a = Exp h", "b = Exp a", "y = Mul b h", outputs="y")

    assert Timeline(CostModel(made, [0, 1, 1, 1]), [0, 1, 2, 0, 3]).repeats() == []

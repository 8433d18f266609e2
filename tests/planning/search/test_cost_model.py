from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from programs import program
from random_programs import programs
from random_steps import steps

from gradtool.planning.schedule import Schedule, pruned
from gradtool.planning.search.cost_model import CostModel

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


def drops(draw, work):
    roots = sorted(r for r in work.maker if work.may_drop(r))
    found = {}
    for _ in range(draw(st.integers(0, 6)) if roots else 0):
        place = draw(st.integers(0, len(work.reads) - 1))
        found[place] = found.get(place, frozenset()) | {draw(st.sampled_from(roots))}
    return found


@settings(max_examples=300, **EXAMPLES)
@given(st.data())
def test_weighing_says_what_the_simulator_says_of_the_schedule(data):
    before = data.draw(st.one_of(programs(), steps(8)))
    work = CostModel(before, [1] * len(before.steps))
    weighed = work.weigh(drops(data.draw, work))

    assert weighed.profile == work.simulator.profile(weighed.places)
    assert weighed.extra == len(weighed.places) - len(before.steps)
    assert pruned(before, Schedule.of(weighed.places)).order == tuple(weighed.places)


def test_what_is_dropped_runs_again_right_before_it_is_read():
    """h is dropped once a is there, so it runs again before y."""
    before = program("h = Tanh x", "a = Exp h", "b = Exp a", "y = Mul b h", outputs="y")
    work = CostModel(before, [5, 1, 1, 1])
    weighed = work.weigh({1: frozenset(work.writes[0])})

    assert weighed.places == [0, 1, 2, 0, 3]
    assert weighed.during == [0, 1, 2, 3, 3]
    assert weighed.extra == 5


def test_what_is_dropped_before_it_is_read_runs_later_instead():
    before = program("h = Tanh x", "a = Exp x", "b = Exp a", "y = Mul b h", outputs="y")
    weighed = (work := CostModel(before, [5, 1, 1, 1])).weigh({0: frozenset(work.writes[0])})

    assert weighed.places == [1, 2, 0, 3]
    assert weighed.extra == 0


def test_a_storage_recomputed_once_serves_all_later_reads():
    before = program("h = Tanh x", "a = Exp h", "b = Mul a h", "y = Mul b h", outputs="y")
    weighed = (work := CostModel(before, [5, 1, 1, 1])).weigh({1: frozenset(work.writes[0])})

    assert weighed.places == [0, 1, 0, 2, 3]


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

    assert work.schedule(work.weigh({}).places).order == (1, 0, 2)

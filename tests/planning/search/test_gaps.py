from __future__ import annotations

from programs import program

from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.gaps import Lives, absent, idle, with_drops, without_drop


def work():
    made = program("h = Tanh x", "a = Exp h", "b = Exp a", "y = Mul b h", outputs="y")
    return CostModel(made, [1] * 4)


def test_a_storage_is_idle_between_two_reads():
    problem = work()
    (gap,) = idle(problem, problem.weigh({}))

    assert (gap.root, gap.place, gap.last, gap.next) == (problem.writes[0][0], 1, 1, 3)


def test_a_dropped_storage_is_absent_until_its_step_runs_again():
    problem = work()
    drops = with_drops({}, [(problem.writes[0][0], 1)])
    weighed = problem.weigh(drops)
    (gap,) = absent(problem, weighed, drops)

    assert (gap.root, gap.place, gap.last, gap.next) == (problem.writes[0][0], 1, 1, 3)
    assert gap.root not in [g.root for g in idle(problem, weighed)]


def test_a_drop_that_nothing_follows_is_not_in_force():
    problem = work()
    drops = with_drops({}, [(problem.writes[1][0], 2)])

    assert absent(problem, problem.weigh(drops), drops) == []


def test_taking_a_drop_back_leaves_the_others():
    drops = with_drops({}, [(1, 5), (2, 5)])

    assert without_drop(drops, 1, 5) == {5: frozenset({2})}
    assert drops == {5: frozenset({1, 2})}


def test_what_only_a_rerun_would_keep_alive_is_dropped_with_it():
    """h is read once by a; if a ran again before y, h would have to stay until then."""
    made = program("h = Tanh x", "a = Exp h", "b = Exp a", "c = Exp b", "y = Mul c a", outputs="y")
    problem = CostModel(made, [1] * 5)
    weighed = problem.weigh({})
    (gap,) = idle(problem, weighed)
    h, a = problem.writes[0][0], problem.writes[1][0]

    assert gap.root == a
    assert Lives(problem, weighed).with_inputs(gap) == [(a, 2), (h, 1)]


def test_what_is_alive_anyway_is_not_dropped_with_it():
    made = program(
        "h = Tanh x",
        "a = Exp h",
        "b = Exp a",
        "c = Exp b",
        "d = Mul c a",
        "y = Mul d h",
        outputs="y",
    )
    problem = CostModel(made, [1] * 6)
    weighed = problem.weigh({})
    gap = next(g for g in idle(problem, weighed) if g.root == problem.writes[1][0])

    assert Lives(problem, weighed).with_inputs(gap) == [(gap.root, 2)]

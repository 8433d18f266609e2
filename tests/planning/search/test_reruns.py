from __future__ import annotations

from programs import program

from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.edit import Edit, Gap
from gradtool.planning.search.reruns import again, erased
from gradtool.planning.search.timeline import Timeline


def work():
    made = program(
        "g = Tanh x", "h = Tanh g", "a = Exp h", "b = Exp a", "c = Exp b", "y = Mul c h",
        outputs="y", sizes={"b": 32},
    )  # fmt: skip
    return CostModel(made, [3, 5, 1, 1, 1, 1])


def test_a_storage_is_computed_again_with_what_the_budget_cannot_hold():
    """h could be read again before y if g were there: g stays alive from entry 1 on, or runs."""
    problem = work()
    line = Timeline(problem, range(6))
    gap = Gap(0.0, problem.writes[1][0], 2, 5)
    tight = [(p.edit, p.cost) for p in again(problem, line, gap, 3, 3 * 64)]
    roomy = [(p.edit, p.cost) for p in again(problem, line, gap, 3, 8 * 64)]

    assert (Edit((), 5, (0, 1)), 8) in tight
    assert (Edit((), 5, (1,)), 5) in tight
    assert {cost for _, cost in roomy} == {5}


def test_the_profile_of_a_proposal_is_that_of_its_schedule_where_nothing_more_runs():
    problem = work()
    line = Timeline(problem, range(6))
    gap = Gap(0.0, problem.writes[1][0], 2, 5)
    proposal = next(iter(again(problem, line, gap, 3, 8 * 64)))
    after = Timeline(problem, proposal.edit.applied(line.places))

    assert proposal.profile[:5].tolist() == after.profile[:5].tolist()


def test_a_result_is_not_computed_again():
    made = program("h = Tanh x", "a = Exp h", "b = Exp a", "y = Mul b h", outputs="h y")
    problem = CostModel(made, [1] * 4)
    gap = Gap(0.0, problem.writes[0][0], 1, 3)

    assert list(again(problem, Timeline(problem, range(4)), gap, 2, 64)) == []


def test_a_step_that_runs_no_longer_again_leaves_its_first_result_alive():
    problem = work()
    line = Timeline(problem, [0, 1, 2, 3, 4, 0, 1, 5])
    proposal = erased(problem, line, 6)
    after = Timeline(problem, proposal.edit.applied(line.places))

    assert proposal.cost == -5
    assert after.places == list(range(6))
    assert proposal.profile[2:5].tolist() == after.profile[2:5].tolist()

"""Budgets and slowdowns: what is found, what is said, what cannot be had."""

import dataclasses
from fractions import Fraction

import pytest
from encoders import encoder_decoder
from layered import layers, workload_of

from gradtool.errors import OverBudget
from gradtool.workloads.budgets import search
from gradtool.workloads.budgets.budget_queries import Answers, work_of
from gradtool.workloads.budgets.limits import Budget
from gradtool.workloads.budgets.search import Search, at_most, within

QUICK = Search(0.03)


def test_a_plan_within_a_share_of_keep():
    work = layers()
    found = within(work, Budget.of("75%"), QUICK)

    assert found.plan.peak <= work.kept.peak * 3 // 4
    assert found.proof.extra > 0
    assert found.notes[0].startswith("optimal: extra work ")
    assert "bound" in found.notes[0]
    assert "gap" in found.notes[0]


def test_a_plan_has_the_name_of_the_strategy_that_was_asked():
    work = layers()

    assert within(work, Budget.of("75%"), QUICK, "min-cut").name == "min-cut"
    assert within(work, Budget.of("75%"), QUICK).name == "optimal"


def test_optimizer_state_is_part_of_the_budget():
    work = layers()
    trained = {"w": work.program.outputs[0]}
    work = workload_of(dataclasses.replace(work.program, gradients=trained))
    state = Budget(optimizer="adam").state(work)
    found = within(work, Budget.of(work.kept.peak, "adam"), QUICK)

    assert state > 0
    assert found.plan.peak <= work.kept.peak - state
    assert "with the state of adam" in found.notes[-1]


def test_the_least_budget_is_reached_and_less_is_not():
    work = layers()
    least = within(work, Budget.of("min"), QUICK)

    assert least.plan.peak < work.kept.peak
    with pytest.raises(OverBudget, match="the smallest budget") as caught:
        within(work, Budget.of(least.proof.least - 64), QUICK)
    assert f"{least.plan.peak} bytes" in str(caught.value)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("share", [0, 0.1, Fraction(1, 5), 1])
def test_extra_work_stays_below_what_is_allowed(share):
    work = layers()
    found = at_most(work, share, QUICK)

    assert found.proof.extra <= share * found.proof.total
    assert found.proof.allowed == int(share * found.proof.total)
    assert found.proof.least <= found.plan.peak <= work.kept.peak


def test_more_work_never_takes_more_memory():
    work = layers()
    peaks = [at_most(work, share, QUICK).plan.peak for share in (0, 0.1, 0.3)]

    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < peaks[0]


def test_without_a_share_one_forward_pass_is_allowed():
    work = layers()
    forward = QUICK.prices.forward(work.program)
    found = at_most(work, None, QUICK)

    assert found.proof.allowed == forward
    assert work_of(found) <= forward


def test_all_questions_of_one_effort_have_one_frontier():
    work = layers()

    assert QUICK.answers(work) is Search(QUICK.effort).answers(work)
    assert QUICK.answers(work) is not Search(0.2).answers(work)
    assert QUICK.answers(work) is not Search(QUICK.effort, seed=1).answers(work)


def test_points_are_heard_of():
    heard = []
    work = layers()
    work.listener.point = lambda *each: heard.append(each)
    within(work, Budget.of("75%"), Search(0.11))

    assert heard[-1] == (heard[-1][1], heard[-1][1])
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)


def test_a_limit_of_time_never_shortens_the_frontier():
    """No second is left for another one, and the answer is that without a limit."""
    plain = within(layers(6), Budget.of("75%"), Search(0.1))
    found = within(layers(6), Budget.of("75%"), Search(0.1, seconds=1e-6))

    assert found.schedule == plain.schedule
    assert found.proof.cut_short == bool(found.proof.gap)


def test_time_that_is_left_deepens_the_search(monkeypatch):
    efforts = []
    asked = Answers.within

    def within_(self, arena):
        efforts.append(self.context.effort)
        return asked(self, arena)

    monkeypatch.setattr(Answers, "within", within_)
    monkeypatch.setattr(search.LeastWork, "is_proven", lambda _: len(efforts) > 3)
    within(layers(), Budget.of("75%"), Search(0.1, seconds=3600.0))

    assert sorted(set(efforts)) == [0.1, 0.4]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, search.TimeIsUp])
def test_an_end_of_a_deeper_search_leaves_the_best_so_far_and_says_so(monkeypatch, stop):
    asked = Answers.within

    def within_(self, arena):
        if self.context.effort > 0.1:
            raise stop
        return asked(self, arena)

    monkeypatch.setattr(Answers, "within", within_)
    monkeypatch.setattr(search.LeastWork, "is_proven", lambda _: False)
    found = within(layers(6), Budget.of("75%"), Search(0.1, seconds=3600.0))

    assert found.proof.cut_short
    assert found.schedule == within(layers(6), Budget.of("75%"), Search(0.1)).schedule


def test_an_interrupt_before_the_first_plan_is_an_interrupt(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Answers, "within", stop)

    with pytest.raises(KeyboardInterrupt):
        within(layers(), Budget.of("75%"))


@pytest.mark.parametrize("percent", [72, 80, 90])
def test_a_proof_that_is_asked_for_raises_the_bound_and_never_the_work(percent):
    plain = within(layers(), Budget.of(f"{percent}%"), QUICK)
    proven = within(layers(), Budget.of(f"{percent}%"), dataclasses.replace(QUICK, prove=True))

    assert proven.plan.peak <= proven.proof.budget == plain.proof.budget
    assert proven.proof.extra <= plain.proof.extra
    assert proven.proof.bound >= min(plain.proof.bound, proven.proof.extra)
    assert proven.proof.gap <= plain.proof.gap


def test_a_proof_finds_the_plan_that_nothing_beats():
    work = workload_of(encoder_decoder())
    plain = at_most(work, 0.25, QUICK)
    found = at_most(work, 0.25, dataclasses.replace(QUICK, prove=True))

    assert plain.proof.gap > found.proof.gap == 0
    assert found.proof.how == "integer programme"
    assert found.plan.peak <= plain.plan.peak
    assert found.proof.allowed == plain.proof.allowed
    assert found.proof.least >= plain.proof.least

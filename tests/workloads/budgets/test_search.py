"""Budgets and slowdowns: what is found, what is said, what cannot be had."""

import dataclasses
from fractions import Fraction

import pytest
from layered import layers, workload_of

from gradtool.errors import GradtoolError
from gradtool.workloads.budgets import search
from gradtool.workloads.budgets.limits import Budget
from gradtool.workloads.budgets.probes import Probes, work_of
from gradtool.workloads.budgets.search import Search, at_most, one_forward, within

QUICK = Search(0.1)


def test_a_plan_within_a_share_of_keep():
    work = layers()
    found = within(work, Budget.of("75%"), QUICK)

    assert found.plan.peak <= work.kept.peak * 3 // 4
    assert found.proof.extra > 0
    assert found.notes[0].startswith("optimal: extra work ")
    assert "bound" in found.notes[0]
    assert "gap" in found.notes[0]


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
    with pytest.raises(GradtoolError, match="the smallest budget") as caught:
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
    forward = Probes(work).prices.forward(work.program)

    for found in (at_most(work, None, QUICK), one_forward(work)):
        assert found.proof.allowed == forward
        assert work_of(found) <= forward


def test_a_large_program_is_searched_less():
    small = layers()
    steps = small.program.steps * 400
    large = dataclasses.replace(small, program=dataclasses.replace(small.program, steps=steps))

    assert search.modest(small) == search.QUICK
    assert search.modest(large) < search.QUICK


class Interrupted(Probes):
    """Stops after the first answer, as if the user had pressed a key then."""

    def ask(self, budget, effort):
        if effort > search.QUICK or self._asked:
            raise KeyboardInterrupt
        return super().ask(budget, effort)


@pytest.fixture
def interrupted(monkeypatch):
    monkeypatch.setattr(search, "Probes", Interrupted)


@pytest.mark.usefixtures("interrupted")
def test_an_interrupt_leaves_the_best_so_far_and_says_so(monkeypatch):
    work = layers(6)
    monkeypatch.setattr(Interrupted, "known", _with_a_gap)
    found = within(work, Budget.of("75%"))

    assert found.proof.cut_short
    assert "cut short" in " ".join(found.notes)


def _with_a_gap(self, budget):
    found = Probes.known(self, budget)
    return found and dataclasses.replace(found, proof=dataclasses.replace(found.proof, bound=-1))


@pytest.mark.usefixtures("interrupted")
def test_what_is_proven_optimal_is_not_cut_short(monkeypatch):
    work = layers(6)
    monkeypatch.setattr(Interrupted, "known", _without_a_gap)
    found = within(work, Budget.of("75%"))

    assert found.proof.extra > 0
    assert not found.proof.cut_short
    assert "cut short" not in " ".join(found.notes)


def _without_a_gap(self, budget):
    found = Probes.known(self, budget)
    proven = dataclasses.replace(found.proof, bound=found.proof.extra) if found else None
    return found and dataclasses.replace(found, proof=proven)


@pytest.mark.parametrize(
    ("extra", "bound", "below", "cut_short"),
    [
        pytest.param(5, 5, 0, False, id="nothing less works nor fits"),
        pytest.param(5, 5, 1, True, id="one byte less may do"),
        pytest.param(5, 4, 0, True, id="less work may do"),
    ],
)
def test_a_least_peak_out_of_time_is_cut_short_unless_it_is_proven(
    monkeypatch, extra, bound, below, cut_short
):
    known = search.least_known

    def told(probes, allowed):
        found = known(probes, allowed)
        least = found.plan.peak - below
        proof = dataclasses.replace(found.proof, extra=extra, bound=bound, least=least)
        return dataclasses.replace(found, proof=proof)

    monkeypatch.setattr(search, "least_known", told)
    monkeypatch.setattr(search, "deadline", lambda _: lambda: True)

    assert at_most(layers(), None, Search(0.1, seconds=3600)).proof.cut_short == cut_short


def test_a_least_peak_in_time_is_not_cut_short():
    assert not at_most(layers(), Fraction(1, 10), QUICK).proof.cut_short


def test_an_interrupt_before_the_first_plan_is_an_interrupt(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Probes, "ask", stop)

    with pytest.raises(KeyboardInterrupt):
        within(layers(), Budget.of("75%"))


def test_where_time_ends_first_a_simple_recipe_is_the_answer(monkeypatch):
    monkeypatch.setattr(Probes, "ask", _no_time)
    found = within(layers(), Budget.of("90%"), Search(seconds=60.0))

    assert found.proof.cut_short
    assert found.proof.how in ("sqrt segments", "segments", "mirror")


def test_no_time_for_any_plan_is_one_line(monkeypatch):
    least = Probes(layers()).least
    monkeypatch.setattr(Probes, "ask", _no_time)

    with pytest.raises(GradtoolError, match="no plan was found within --time-limit"):
        within(layers(), Budget.of(least), Search(seconds=60.0))


def _no_time(*_):
    raise search.TimeIsUp

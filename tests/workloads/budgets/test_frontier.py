"""The frontier: work falls as the budget rises."""

from fractions import Fraction

import pytest
from layered import layers

from gradtool.workloads.budgets import frontier as module
from gradtool.workloads.budgets.frontier import by_slowdown, frontier
from gradtool.workloads.budgets.probes import Probes


def test_work_never_rises_with_the_budget():
    work = layers()
    found = frontier(work, 7)
    extra = [p.proof.extra for p in found]

    assert len(found) == 7
    assert extra == sorted(extra, reverse=True)
    assert extra[0] > extra[-1] == 0
    assert all(p.plan.peak <= p.proof.budget <= work.kept.peak for p in found)
    assert not any(p.proof.cut_short for p in found)


def test_a_frontier_that_was_cut_short_says_so(monkeypatch):
    def stop(*_):
        raise module.TimeIsUp

    monkeypatch.setattr(module, "halved", stop)

    assert all(p.proof.cut_short for p in frontier(layers(), 5))


def test_slowdowns_share_what_is_found():
    work = layers()
    shares = [Fraction(0), Fraction(1, 10), Fraction(1, 3)]
    found = by_slowdown(work, shares)

    assert [p.proof.extra <= s * p.proof.total for p, s in zip(found, shares, strict=True)] == [
        True, True, True,
    ]  # fmt: skip
    assert found[0].plan.peak >= found[1].plan.peak >= found[2].plan.peak


def test_every_point_of_a_frontier_has_a_bound_of_its_peak_and_of_its_work():
    work = layers()
    found = by_slowdown(work, [Fraction(0), Fraction(1, 10), Fraction(1, 3)])
    least = [p.proof.least for p in found]

    assert least == sorted(least, reverse=True)
    assert all(low <= p.plan.peak for low, p in zip(least, found, strict=True))
    assert least[0] > least[-1]
    assert all(0 < p.proof.bound <= p.proof.extra for p in found if p.proof.extra)


@pytest.mark.parametrize("points", [2, 3, 20])
def test_budgets_go_from_the_least_to_keep(points):
    work = layers()
    probes = Probes(work)
    budgets = module._spread(probes, points)

    assert budgets == [work.kept.peak]
    probes.cook()
    budgets = module._spread(probes, points)
    assert budgets[-1] == work.kept.peak
    assert budgets[0] == min(p.plan.peak for p in probes.found)
    assert len(budgets) <= points

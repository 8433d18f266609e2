from __future__ import annotations

from mountain import mountain

from gradtool.planning.budget.tight import repaired


def test_the_schedule_is_never_worse_than_the_start():
    """A start that costs more than needed is improved, a good one is kept."""
    dear, cheap = [0, 1, 2, 3, 4, 2, 5, 1, 6, 0, 7], [0, 1, 2, 3, 4, 5, 1, 6, 7]
    found = [repaired(mountain(), 5 * 64, s, 10**5, enough=1, seed=0) for s in (dear, cheap)]

    assert [line.extra for line in found] == [1, 1]
    assert all(line.peak <= 5 * 64 for line in found)


def test_without_any_schedule_within_the_budget_the_lowest_is_told():
    line = repaired(mountain(), 3 * 64, range(8), 10**5, enough=0, seed=0)

    assert line.peak == 4 * 64

from __future__ import annotations

import pytest
from mountain import mountain

from gradtool.errors import GradtoolError
from gradtool.planning.polish import finish
from gradtool.planning.polish.finish import finished, require

TWICE = (0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7)


def stages(solver, stop=lambda: False):
    work = mountain()
    return list(
        finished(
            work.program, TWICE, 6 * 64, costs=work.costs, effort=0.01, seed=0, enough=0,
            solver=solver, stop=stop,
        )
    )  # fmt: skip


@pytest.mark.parametrize("solver", ["auto", "native", "compiled"])
def test_windows_are_opened_only_where_they_are_asked_for(solver):
    assert [name for name, _ in stages(solver, stop=lambda: True)] == ["annealing"]


def test_windows_go_on_where_annealing_ends():
    pytest.importorskip("ortools", reason="windows need the extra solver")
    (annealing, before), (windows, after) = stages("cp-sat")

    assert (annealing, windows) == ("annealing", "windows")
    assert after.rank(6 * 64) <= before.rank(6 * 64)


def test_a_stopped_search_ends_with_its_start():
    pytest.importorskip("ortools", reason="windows need the extra solver")

    assert {p.extra for _, p in stages("cp-sat", stop=lambda: True)} == {0}


def test_the_solver_that_is_asked_for_has_to_be_there(monkeypatch):
    monkeypatch.setattr(finish, "find_spec", lambda _: None)
    require("auto")
    require("compiled")

    with pytest.raises(GradtoolError, match=r"pip install 'gradtool\[solver\]'"):
        require("cp-sat")

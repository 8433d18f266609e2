from __future__ import annotations

import pytest
from mountain import mountain

from gradtool.errors import GradtoolError
from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.local import finish
from gradtool.planning.search.local.finish import finished, require

POOR = (0, 1, 2, 3, 4, 0, 1, 2, 5, 0, 1, 6, 0, 7)


def stages(solver, stop=lambda: False):
    work = mountain()
    context = SearchContext(costs=work.costs, effort=0.02, solver=solver, stop=stop)
    return list(finished(work.program, POOR, 6 * 64, context, enough=0))


@pytest.mark.parametrize("solver", ["auto", "native", "compiled"])
def test_windows_are_opened_only_where_they_are_asked_for(solver):
    assert [name for name, _ in stages(solver, stop=lambda: True)] == ["annealing"]


@pytest.mark.extra
def test_windows_go_on_where_annealing_ends():
    """Annealing is told to stop, after its first seed and the last; windows are not."""
    pytest.importorskip("ortools", reason="windows need the extra solver")
    asked = iter((True, True))
    (annealing, before), (windows, after) = stages("cp-sat", stop=lambda: next(asked, False))

    assert (annealing, windows) == ("annealing", "windows")
    assert (before.order, after.extra) == (POOR, 0)


@pytest.mark.extra
def test_a_stopped_search_ends_with_its_start():
    pytest.importorskip("ortools", reason="windows need the extra solver")

    assert {p.order for _, p in stages("cp-sat", stop=lambda: True)} == {POOR}


def test_the_solver_that_is_asked_for_has_to_be_there(monkeypatch):
    monkeypatch.setattr(finish, "find_spec", lambda _: None)
    require("auto")
    require("compiled")

    with pytest.raises(GradtoolError, match=r"pip install 'gradtool\[solver\]'"):
        require("cp-sat")

from __future__ import annotations

import dataclasses

from programs import program

from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.edit import Edit
from gradtool.planning.search.shifts import Shifts
from gradtool.planning.search.timeline import Timeline


def edits(proposals):
    return [p.edit for p in proposals]


def test_a_reader_runs_before_the_peak_with_what_it_needs():
    made = program(
        "h = Tanh x", "a = Exp x", "b = Tanh h", "y = Mul b h", "z = Mul a y", outputs="z"
    )
    work = CostModel(made, [1] * 5)
    line = Timeline(work, range(5))
    (proposal,) = Shifts(work).pulled(line, 3, 1)

    assert proposal.edit == Edit((2, 3), 1, (2, 3))
    assert proposal.edit.applied(line.places) == [0, 2, 3, 1, 4]
    assert proposal.cost == 0


def test_what_needs_the_peak_stays_behind_it():
    made = program("h = Tanh x", "a = Exp x", "b = Exp a", "y = Mul b h", outputs="y")
    work = CostModel(made, [1] * 4)

    assert edits(Shifts(work).pulled(Timeline(work, range(4)), 3, 1)) == []


def test_a_maker_runs_right_before_the_first_read():
    made = program("h = Tanh x", "a = Exp x", "b = Exp a", "y = Mul b h", outputs="y")
    work = CostModel(made, [1] * 4)
    line = Timeline(work, range(4))
    (proposal,) = Shifts(work).pushed(line, 0, 1)
    after = Timeline(work, proposal.edit.applied(line.places))

    assert after.places == [1, 2, 0, 3]
    assert proposal.profile[1:3].tolist() == after.profile[:2].tolist()


def test_steps_that_draw_at_random_do_not_pass_each_other():
    made = program("h = Tanh x", "a = Exp x", "b = Exp a", "y = Mul b h", outputs="y")
    once = [dataclasses.replace(s, recomputable=i not in (0, 2)) for i, s in enumerate(made.steps)]
    work = CostModel(dataclasses.replace(made, steps=tuple(once)), [1] * 4)

    assert edits(Shifts(work).pushed(Timeline(work, range(4)), 0, 1)) == []

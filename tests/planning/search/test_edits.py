from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from mountain import mountain
from random_programs import orders, programs
from random_steps import steps

from gradtool.planning.schedule import instances
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.edits import Edits
from gradtool.planning.search.timeline import Timeline

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


@settings(max_examples=200, **EXAMPLES)
@given(st.data())
def test_every_edit_leads_to_a_schedule_that_can_run(data):
    """No read comes before its step, and steps that run once run once, in their order."""
    made = data.draw(st.one_of(programs(), steps(8)))
    work = CostModel(made)
    line = Timeline(work, data.draw(orders(made.steps)))
    peak = int(line.profile.argmax())
    once = [i for i, step in enumerate(made.steps) if not step.recomputable]
    for proposal in Edits(work, line.peak - 1).around(line, peak):
        after = Timeline(work, proposal.edit.applied(line.places))
        instances(made, after.places)

        assert set(after.places) == set(line.places)
        assert [p for p in after.places if p in once] == [p for p in line.places if p in once]


def test_at_the_peak_of_a_mountain_each_value_below_can_be_computed_again():
    work = mountain()
    line = Timeline(work, range(8))
    found = {p.edit.runs for p in Edits(work, 5 * 64).around(line, 4) if not p.edit.gone}

    assert {runs[-1] for runs in found} == {0, 1, 2}

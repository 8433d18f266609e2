"""Groups of clones that come and go say what the simulator says."""

from __future__ import annotations

from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from training_programs import training_programs

from gradtool.planning.recompute.groups import Toggles
from gradtool.planning.recompute.late_clones import late
from gradtool.planning.simulate import Simulator

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


@settings(max_examples=trials(300), **EXAMPLES)
@given(training_programs(), st.data())
def test_after_any_toggles_the_profile_is_that_of_the_simulator(drawn, data):
    forward = [i for i, s in enumerate(drawn.steps) if s.stage == "forward"]
    order = late(drawn, dict.fromkeys(forward, "+"))
    clones = [p for p, suffix in enumerate(order.suffixes) if suffix]
    group_of = [data.draw(st.integers(0, 2)) for _ in clones]
    groups = [[p for p, g in zip(clones, group_of, strict=True) if g == k] for k in range(3)]
    simulator = Simulator(drawn)
    toggles = Toggles(simulator, order.order, groups)
    for group in data.draw(st.lists(st.integers(0, 2), max_size=5)):
        toggles.toggle(group)

    left = [p for p in range(len(order.order)) if toggles.present[p]]
    found = toggles.profile()
    assert found[left].tolist() == simulator.profile([order.order[p] for p in left])
    assert all(found[p] < 0 for p in clones if not toggles.present[p])

"""Segments between checkpoints: what is held, what runs again and where."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import program
from training_programs import backward_from, chain, run, training_programs

from gradtool.errors import UsageError
from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.recompute.segments import checkpointed, crossing_line
from gradtool.planning.schedule import replay
from gradtool.planning.simulate import Simulator

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}
SKIP = backward_from(
    program("a = Exp x", "b = Exp a", "c = Exp b", "d = Add c a", "e = Exp d", "g = Mul e d",
            "h = Mul g c", "i = Mul h b", "j = Mul i a", outputs="j"), 5,
)  # fmt: skip


def names(before, found):
    return [s.name for s in replay(before, found.outcome.schedule).steps]


def test_two_segments_and_a_tail_worked_by_hand():
    """h1 … h6 is forward; each gradient reads the value of its own number.

    h1 and h3 are computed again just before they are read; the tail h5, h6 is not.
    """
    made = chain(3)
    found = checkpointed(made, ["h4", "h2"])

    assert names(made, found) == [
        "h1", "h2", "h3", "h4", "h5", "h6", "g5", "g4", "h3_recompute_1", "g3", "g2",
        "h1_recompute_0", "g1", "g0",
    ]  # fmt: skip
    assert found.checkpoints == ("h2", "h4")
    assert found.residuals == ()
    assert found.outcome.peak == Simulator(made).peak(found.outcome.schedule.order)


def test_the_order_in_which_checkpoints_are_named_does_not_matter():
    made = chain(3)

    assert checkpointed(made, ["h4", "h2", "h4"]) == checkpointed(made, ["h2", "h4"])


def test_what_crosses_a_segment_without_being_a_checkpoint_is_held_and_listed():
    found = checkpointed(SKIP, ["c"])

    assert [(c.value, c.bytes, c.segment) for c in found.residuals] == [("a", 64, 0)]
    assert crossing_line(found) == (
        "held beside the checkpoints: a (better checkpoints would remove these)"
    )
    assert names(SKIP, found).count("a_recompute_0") == 0
    assert "b_recompute_0" in names(SKIP, found)
    assert crossing_line(checkpointed(SKIP, ["a", "c"])) is None


def test_what_draws_at_random_is_held():
    made = chain(3)
    steps = [dataclasses.replace(s, recomputable=s.name != "h3") for s in made.steps]
    found = checkpointed(dataclasses.replace(made, steps=tuple(steps)), ["h2", "h4"])

    assert [made.steps[s].name for s in found.outcome.schedule.recomputed] == ["h1"]


def test_a_checkpoint_may_be_a_view():
    plain = program("a = Exp x", "b = Exp r", "c = Exp b", "g = Mul c b", "h = Mul g r",
                    outputs="h", views={"r": "a"})  # fmt: skip
    made = backward_from(plain, 3)

    assert checkpointed(made, ["r"]).checkpoints == ("a",)


@pytest.mark.parametrize(
    ("checkpoints", "message"),
    [
        (["h22"], "checkpoint 'h22' does not exist; did you mean 'h2'"),
        (["w"], "checkpoint 'w' is no forward value: no step computes it, it is of kind parameter"),
        (["g1"], "checkpoint 'g1' is no forward value: it is computed in the backward part"),
        ([], "no checkpoints are given"),
    ],
)
def test_checkpoints_that_are_no_forward_values(checkpoints, message):
    with pytest.raises(UsageError, match=message):
        checkpointed(chain(2), checkpoints)


def test_a_checkpoint_that_the_loss_does_not_read():
    made = backward_from(
        program("a = Exp x", "s = Neg x", "l = Exp a", "g = Mul l a", outputs="l g s"), 3
    )
    loss = next(i for i, d in enumerate(made.values) if d.name == "l")

    with pytest.raises(UsageError, match="'s' is not on the path: the loss does not read it"):
        checkpointed(dataclasses.replace(made, loss=loss), ["s"])


@pytest.mark.exhaustive
@settings(max_examples=trials(150), **EXAMPLES)
@given(training_programs(runnable=True), st.data())
def test_any_checkpoints_leave_every_bit_and_the_planned_peak_is_that_of_the_plan(drawn, data):
    forward = [i for i, s in enumerate(drawn.steps) if s.stage == "forward"]
    ends = data.draw(st.sets(st.sampled_from(forward), min_size=1))
    found = checkpointed(drawn, [drawn.steps[i].name for i in sorted(ends)])
    after = replay(drawn, found.outcome.schedule)

    assert no_recompute(after).peak_live == found.outcome.peak
    with np.errstate(all="ignore"):
        assert run(after) == run(drawn)
    last = max(ends)
    assert all(s <= last for s in found.outcome.schedule.recomputed)
    assert all(drawn.steps[s].recomputable for s in found.outcome.schedule.recomputed)

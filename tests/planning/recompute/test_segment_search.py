"""Segments that nobody has to name."""

from __future__ import annotations

import pytest
from conftest import trials
from hypothesis import given, settings
from programs import program
from training_programs import backward_from, chain, training_programs

from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.recompute.segment_search import (
    Cuts,
    best_segments,
    segment_schedules,
    sqrt_segments,
)
from gradtool.planning.recompute.segments import checkpointed
from gradtool.planning.schedule import replay

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


def test_a_chain_of_n_layers_is_planned_in_about_twice_the_root_of_n():
    """50 layers of 2 values: 10 checkpoints, and one segment of 10 values computed again."""
    made = chain(50)
    found = sqrt_segments(made)
    beside = Cuts.of(made).made[0] * 2

    assert len(found.ends) == 9
    assert found.outcome.peak <= beside + 64 * (9 + 10 + 3)
    assert found.outcome.peak < found.outcome.keep_peak / 4
    assert found.notes == ()


def test_a_net_whose_cuts_hold_several_tensors_says_so():
    steps = ["a0 = Exp x", "b0 = Neg x"]
    for i in range(1, 9):
        steps += [f"a{i} = Exp a{i - 1}", f"b{i} = Neg b{i - 1}"]
    forward = len(steps) + 1
    steps += ["y = Add a8 b8", "g8 = Mul y a8"]
    steps += [f"g{i} = Mul g{i + 1} a{i}" for i in reversed(range(8))]
    made = backward_from(program(*steps, outputs="g0"), forward)
    found = sqrt_segments(made)

    assert found.notes[0].endswith("checkpoints have more than one tensor")
    assert len(found.checkpoints) > len(found.ends)


@pytest.mark.parametrize("layers", [5, 12, 20])
def test_the_best_number_of_segments_is_no_worse_than_the_root(layers):
    made = chain(layers)

    assert best_segments(made).outcome.peak <= sqrt_segments(made).outcome.peak


def test_segments_that_lower_nothing_are_not_computed_again():
    """A huge value at the end has the peak: nothing that comes before matters."""
    steps = ["a = Exp x", "b = Exp a", "c = Exp b", "d = Exp c", "g = Mul d d", "h = Mul s c",
             "i = Mul h b", "j = Mul i a"]  # fmt: skip
    steps.insert(5, "s = Exp g")
    made = backward_from(program(*steps, outputs="j", sizes={"d": 1600, "g": 1600}), 4)
    found = best_segments(made)

    assert found.outcome.clones == len(found.outcome.schedule.recomputed)
    assert found.outcome.peak <= found.outcome.keep_peak
    for name in found.checkpoints:
        assert found.outcome.peak <= checkpointed(made, [name]).outcome.peak


@settings(max_examples=trials(60), **EXAMPLES)
@given(training_programs())
def test_figures_are_those_of_the_plan_and_the_best_is_never_worse_than_keeping(drawn):
    best, root = best_segments(drawn), sqrt_segments(drawn)

    assert best.outcome.peak <= best.outcome.keep_peak == no_recompute(drawn).peak_live
    for found in (best, root):
        assert no_recompute(replay(drawn, found.outcome.schedule)).peak_live == found.outcome.peak


def test_schedules_of_segments_grow_in_number_and_run_every_step():
    made = chain(32)
    schedules = list(segment_schedules(made))
    counts = [len(s.recomputed) for s in schedules]

    assert len(schedules) == 7  # 2, 3, 4, 6, 8, 12 and 16 segments of 64 steps
    assert counts[0] == min(counts) < counts[-1]
    assert all(set(s.order) == set(range(len(made.steps))) for s in schedules)

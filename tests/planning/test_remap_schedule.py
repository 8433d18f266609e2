"""Orders of one program in terms of another one of the same model."""

from __future__ import annotations

import pytest
from hypothesis import given
from programs import program
from training_programs import training_programs

from gradtool.planning.remap_schedule import translated

STEPS = ("a = Exp x", "v = Tanh a", "b = Sin v", "c = Cos v")


def names(made, order):
    return [made.steps[s].name for s in order]


@given(training_programs())
def test_an_order_of_the_same_program_stays_as_it_is(drawn):
    order = list(range(len(drawn.steps)))

    assert translated(drawn, drawn, order) == order


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ((0, 1, 2), ["a", "v", "b", "c"]),
        ((0, 2, 1), ["a", "v", "c", "b"]),
        ((0, 1, 0, 2), ["a", "v", "b", "a", "v", "c"]),
    ],
)
def test_a_view_that_became_a_step_runs_once_per_instance_of_its_base(order, expected):
    before = program("a = Exp x", "b = Sin v", "c = Cos v", outputs="b c", views={"v": "a"})
    after = program(*STEPS, outputs="b c")

    assert names(after, translated(before, after, order)) == expected


def test_a_step_that_became_a_view_is_left_out():
    before = program(*STEPS, outputs="b c")
    after = program("a = Exp x", "b = Sin v", "c = Cos v", outputs="b c", views={"v": "a"})

    assert names(after, translated(before, after, [0, 1, 2, 0, 1, 3])) == ["a", "b", "a", "c"]


def test_a_further_step_that_nobody_reads_runs_in_the_end():
    before = program("a = Exp x", "b = Sin a", outputs="b v", views={"v": "a"})
    after = program("a = Exp x", "v = Tanh a", "b = Sin a", outputs="b v")

    assert names(after, translated(before, after, [0, 1])) == ["a", "b", "v"]


def test_further_steps_that_read_the_one_before_twice_run_once_each():
    """As many ways lead through them as there are numbers of 40 bits."""
    count = 40
    further = [f"v{i + 1} = Add v{i} v{i}" for i in range(count)]
    views = {f"v{i + 1}": "v0" for i in range(count)}
    before = program("v0 = Exp x", f"b = Sin v{count}", outputs="b", views=views)
    after = program("v0 = Exp x", *further, f"b = Sin v{count}", outputs="b")

    assert translated(before, after, [0, 1]) == list(range(count + 2))


def test_what_is_read_with_these_sizes_alone_runs_early_and_once():
    before = program("a = Exp x", "b = Sin x", "c = Cos b", outputs="a c")
    after = program("a = Exp x", "b = Sin a", "c = Cos b", outputs="a c")

    assert names(after, translated(before, after, [1, 0, 2])) == ["a", "b", "c"]

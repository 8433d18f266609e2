"""Who reads what in the forward part, worked by hand."""

from __future__ import annotations

from programs import program
from training_programs import backward_from

from gradtool.planning.recompute.mirror import ForwardGraph

MADE = backward_from(
    program("a = Exp x", "n = Size a", "b = Mul a w", "m = Exp r", "y = Neg b", "g = Mul y a",
            "h = Mul g m", outputs="y h", parameters="w", views={"r": "a"}, sizes={"a": 32}), 5,
)  # fmt: skip


def graph(refused=()):
    return ForwardGraph(MADE, refused)


def number(name):
    return next(i for i, d in enumerate(MADE.values) if d.name == name)


def test_sources_and_targets_are_forward_steps():
    """a is step 0; its reader r is a view."""
    assert graph().sources == {0: [], 1: [0], 2: [0], 3: [0], 4: [2]}
    assert graph().targets == {0: [1, 2, 3], 1: [], 2: [4], 3: [], 4: []}


def test_who_reads_only_the_shape_needs_no_data():
    found = graph()

    assert found.readers[number("a")] == [2, 3, 5]
    assert found.beside[number("a")] == [2, 3]


def test_ends_are_outputs_and_what_no_forward_step_reads():
    assert graph().ends == {1, 3, 4}


def test_sizes_are_those_of_the_whole_value():
    found = graph()

    assert (found.bytes[number("a")], found.bytes[number("r")]) == (128, 64)
    assert found.bytes[number("w")] == 64


def test_steps_that_are_refused_may_not_run_twice():
    assert graph({0, 6}).may == {1, 2, 3, 4}

from __future__ import annotations

import numpy as np
from programs import program

from gradtool.planning.orders.bounds import least_during, least_live, order_bound, working_set
from gradtool.planning.orders.graph import StepGraph


def bound(before):
    graph = StepGraph(before)
    return order_bound(graph, [np.arange(graph.count)], cuts=100)


def test_the_working_set_is_the_largest_step():
    """Mul holds x, a, b and y of 64 bytes and 256 of workspace."""
    before = program("a = Exp x", "b = Tanh a", "y = Mul a b", outputs="y", work={"y": 256})

    assert working_set(StepGraph(before)) == 64 + 3 * 64 + 256


def test_a_step_that_may_write_in_place_is_counted_as_if_it_did():
    before = program("a = Exp x", "y = Tanh a", outputs="y", in_place=True)

    assert working_set(StepGraph(before)) == bound(before).bytes == 128


def test_all_outputs_are_alive_at_the_end():
    before = program("a = Exp x", "b = Exp x", "c = Exp x", "d = Exp x", outputs="a b c d")

    assert working_set(StepGraph(before)) == 64 + 4 * 64


def test_what_every_order_keeps_for_later_counts_beside_a_step():
    """a is read again after c is made, whatever the order."""
    before = program(
        "a = Exp x", "b = Tanh a", "c = Exp b", "y = Mul c a", outputs="y", sizes={"b": 160}
    )
    found = bound(before)

    assert (found.bytes, found.complete) == (64 + 64 + 640 + 64, True)


def test_a_step_needs_least_once_the_other_branch_is_small():
    before = program(
        "a = Exp x", "b = Exp x", "as = Tanh a", "bs = Tanh b", "y = Add as bs",
        outputs="y", sizes={"a": 64, "b": 64},
    )  # fmt: skip
    least, run = least_during(StepGraph(before), 1)

    assert least == 64 + 256
    assert run.tolist() == [False] * 5


def test_the_least_between_two_states_is_found_inside():
    """Between a and y lies the narrow value b."""
    graph = StepGraph(
        program("a = Exp x", "b = Tanh a", "c = Exp b", "y = Tanh c", outputs="y",
                sizes={"a": 64, "c": 64})
    )  # fmt: skip
    low, high = np.array([True, False, False, False]), np.array([True, True, True, False])
    least, run = least_live(graph, low, high)

    assert (least, run.tolist()) == (128, [True, True, False, False])


def test_a_step_writes_over_whichever_input_costs_least_to_free():
    """y may take a, which z reads too, or b, which nobody else needs: b is free to be taken."""
    before = program(
        "a = Exp x", "b = Tanh a", "y = Add a b", "z = Exp a", "o = Mul y z",
        outputs="o", in_place=True,
    )  # fmt: skip
    graph = StepGraph(before)

    assert least_during(graph, 2)[0] == graph.profile(range(5))[2] == 192

"""Instants of the forward part, and which of them segments end at."""

from __future__ import annotations

import pytest
from programs import program
from training_programs import backward_from, chain

from gradtool.planning.recompute.segment_search import Cuts, square_root


def skip(**sizes):
    return backward_from(
        program("a = Exp x", "b = Exp a", "c = Exp b", "d = Add c a", "e = Exp d", "g = Mul e d",
                outputs="g", sizes=sizes), 5,
    )  # fmt: skip


def test_bytes_made_and_crossing_worked_by_hand():
    """a is read until d; b takes 128 bytes and x, an input, is there anyway.

    after   made   crosses
    a         64   a          64
    b        192   a b       192
    c        256   a c       128
    d        320   d          64
    e        384              0  (only backward reads it)
    """
    cuts = Cuts.of(skip(b=32))

    assert cuts.steps == (0, 1, 2, 3, 4)
    assert cuts.made == (64, 192, 256, 320, 384)
    assert cuts.residuals == (64, 192, 128, 64, 0)
    assert cuts.across == (1, 2, 2, 1, 0)


def test_a_chain_is_cut_into_parts_of_equal_bytes():
    cuts = Cuts.of(chain(6))

    assert cuts.even(3) == [3, 7]
    assert cuts.even(1) == []


def test_an_articulation_is_preferred_although_fewer_bytes_cross_elsewhere():
    """Only d cuts in the middle, with 192 bytes; after c two values cross, with 128."""
    cuts = Cuts.of(skip(b=32, d=48, e=64))

    assert cuts.residuals[2:4] == (128, 192)
    assert cuts.even(2) == [3]


def test_without_an_articulation_the_fewest_bytes_cross():
    """Two branches side by side, two values cross everywhere; from d on they take 128 bytes."""
    made = backward_from(
        program("a = Exp x", "b = Neg x", "c = Exp a", "d = Neg b", "e = Exp c", "f = Neg d",
                "y = Add e f", "g = Mul y y", outputs="g", sizes={"b": 32}), 7,
    )  # fmt: skip
    cuts = Cuts.of(made)

    assert cuts.residuals[1:5] == (192, 192, 128, 128)
    assert cuts.even(2) == [3]
    assert [made.values[v].name for v in cuts.values([3])] == ["c", "d"]


@pytest.mark.parametrize("segments", range(2, 12))
def test_instants_are_in_order_and_leave_a_tail(segments):
    cuts = Cuts.of(chain(5))
    instants = cuts.even(segments)

    assert instants == sorted(set(instants))
    assert all(0 <= p < len(cuts.steps) - 1 for p in instants)


def test_a_program_without_forward_steps_has_no_cuts():
    assert Cuts.of(backward_from(chain(1), 0)).even(4) == []


@pytest.mark.parametrize(("count", "root"), [(0, 2), (4, 2), (9, 3), (100, 10), (120, 11)])
def test_the_number_of_segments_is_about_the_square_root(count, root):
    assert square_root(count) == root

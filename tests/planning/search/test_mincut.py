from __future__ import annotations

from fractions import Fraction

from conftest import trials
from hypothesis import given, settings
from programs import program
from random_steps import steps

from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.mincut import Instant

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


def chain():
    """Two forward values of 64 bytes that backward needs: a is dear to run again, b is cheap.

    At d, which reads b, both are needed later: by e and f.
    """
    made = program(
        "a = Tanh x", "b = Exp a", "c = Exp b", "d = Exp c", "e = Mul d b", "f = Mul e a",
        outputs="f",
    )  # fmt: skip
    return CostModel(made, [10, 1, 1, 1, 1, 1])


def names(work, roots):
    return {work.program.values[r].name for r in roots}


def test_everything_is_kept_where_bytes_are_free():
    work = chain()
    choice, _ = Instant.of(work, 3).choose(Fraction(0))

    assert names(work, choice.kept) == {"a", "b"}
    assert (choice.bytes, choice.cost) == (128, 0)


def test_the_cheap_value_is_dropped_first():
    """b costs 1 per 64 bytes, a costs 10: between these prices only a is kept."""
    work = chain()
    choice, least = Instant.of(work, 3).choose(Fraction(1, 16))

    assert names(work, choice.kept) == {"a"}
    assert (choice.bytes, choice.cost) == (64, 1)
    assert 5 - Fraction(1, 10**9) < least <= 5


def test_the_capacity_is_what_the_step_itself_leaves():
    """While d runs, x is there (always), c is read and d written: 64 bytes each."""
    work = chain()

    assert Instant.of(work, 3).capacity(1000) == 1000 - 3 * 64


def test_a_breakpoint_has_a_choice_on_each_side():
    work = chain()
    ends = Instant.of(work, 3).breakpoint(100)

    assert ends.small.bytes <= 100 < ends.large.bytes
    assert names(work, ends.small.kept) == {"a"}
    assert 0 < ends.bound <= 1


def test_without_room_for_what_cannot_run_again_there_is_no_choice():
    made = chain().program
    work = CostModel(made, [None, 1, 1, 1, 1, 1])

    assert Instant.of(work, 3).breakpoint(63) is None


@settings(max_examples=trials(30), **EXAMPLES)
@given(steps(8))
def test_choices_are_no_better_than_their_price_allows(made):
    """Both choices of a breakpoint and what is in between lie above the line of its bound."""
    work = CostModel(made)
    for place in range(len(work.reads)):
        instant = Instant.of(work, place)
        if (ends := instant.breakpoint(5)) is not None:
            assert ends.small.bytes <= 5 or ends.small is ends.large
            assert ends.bound <= ends.small.cost
            assert ends.large.cost <= ends.small.cost

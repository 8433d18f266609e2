"""Where clones stand: just before the first backward step that needs them."""

from __future__ import annotations

from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import program
from training_programs import backward_from, training_programs

from gradtool.planning.recompute.late_clones import late
from gradtool.planning.schedule import pruned, replay

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


def names(before, schedule):
    pairs = zip(schedule.order, schedule.suffixes, strict=True)
    return [before.steps[s].name + suffix for s, suffix in pairs]


def again(before, *steps):
    return {i: "+" for i, s in enumerate(before.steps) if s.name in steps}


DIAMOND = backward_from(
    program("a = Exp x", "b = Exp a", "c = Exp a", "d = Add b c", "e = Mul d x", "f = Mul b e",
            "g = Mul c f", outputs="g"), 4,
)  # fmt: skip


def test_a_clone_stands_before_its_first_backward_reader_and_what_it_reads_before_it():
    order = names(DIAMOND, late(DIAMOND, again(DIAMOND, "a", "b", "c")))

    assert order == ["a", "b", "c", "d", "e", "a+", "b+", "f", "c+", "g"]


def test_a_clone_reads_the_original_of_what_is_not_computed_again():
    assert names(DIAMOND, late(DIAMOND, again(DIAMOND, "c")))[-2:] == ["c+", "g"]


def test_what_nobody_reads_in_backward_is_not_cloned():
    plain = program("a = Exp x", "b = Exp a", "y = Exp b", "z = Exp y", outputs="z")

    assert not late(backward_from(plain, 3), again(plain, "a", "b")).recomputed


def test_an_output_is_not_cloned():
    plain = program("a = Exp x", "y = Exp a", "z = Mul y a", outputs="y z")

    assert names(plain, late(backward_from(plain, 2), again(plain, "a", "y"))) == [
        "a", "y", "a+", "z",
    ]  # fmt: skip


def test_a_long_chain_of_clones_needs_no_recursion():
    steps = ["h0 = Exp x", *(f"h{i} = Exp h{i - 1}" for i in range(1, 3000))]
    made = backward_from(program(*steps, "y = Mul h2999 x", outputs="y"), 3000)

    assert len(late(made, dict.fromkeys(range(3000), "+")).recomputed) == 3000


@settings(max_examples=trials(100), **EXAMPLES)
@given(training_programs(), st.data())
def test_every_schedule_runs_and_no_clone_is_wasted(drawn, data):
    forward = [i for i, s in enumerate(drawn.steps) if s.stage == "forward"]
    chosen = data.draw(st.sets(st.sampled_from(forward)))
    schedule = late(drawn, dict.fromkeys(sorted(chosen), "+"))
    left = pruned(drawn, schedule)

    assert set(schedule.recomputed) <= chosen
    assert [s for s in schedule.order if schedule.order.count(s) > 2] == []
    assert len(replay(drawn, schedule).steps) == len(left.order)

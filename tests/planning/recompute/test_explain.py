"""The facts about one value, worked by hand."""

from __future__ import annotations

import dataclasses

import pytest
from programs import program
from training_programs import backward_from, chain

from gradtool.errors import UsageError
from gradtool.planning.recompute.explain import explain
from gradtool.planning.recompute.mirror import Why, decide
from gradtool.planning.recompute.mirrored import mirrored
from gradtool.planning.recompute.policy import POLICIES


def costed(before, **flops):
    steps = [dataclasses.replace(s, flops=flops.get(s.name)) for s in before.steps]
    return dataclasses.replace(before, steps=tuple(steps))


def test_a_value_that_is_mirrored():
    """h2 = Sin h1 is read by h3 in forward and by g2 in backward; h1 is alive until g1."""
    made = costed(chain(3), h2=5)
    decision = decide(made, POLICIES["mirror"])
    schedule = mirrored(made, decision).outcome.schedule
    facts = explain(made, "h2", decision=decision, schedule=schedule)

    assert (facts.producer, facts.op, facts.stage, facts.bytes) == ("h2", "Sin", "forward", 64)
    assert (facts.born, facts.last) == (1, 9)
    assert [(r.step, r.stage, r.index) for r in facts.readers] == [
        ("h3", "forward", 2), ("g2", "backward", 9),
    ]  # fmt: skip
    assert (facts.mirrored, facts.why, facts.applied) == (True, Why.CHEAPER, True)
    assert (facts.peak_step, facts.at_peak) == ("h6", True)
    assert facts.again.steps == ("h2",)
    assert (facts.again.work.flops, facts.again.work.unknown) == (5, 0)
    assert facts.obstacle is None


def test_a_value_whose_inputs_are_gone_needs_them_again():
    """b is gone when c is needed, a is not: two steps, one of unknown cost."""
    made = backward_from(
        program("a = Exp x", "b = Exp a", "c = Exp b", "d = Exp c", "g = Mul d c", "h = Mul g a",
                outputs="h"), 4,
    )  # fmt: skip
    again = explain(costed(made, c=3), "c").again

    assert again.steps == ("b", "c")
    assert (again.work.flops, again.work.unknown) == (3, 1)
    assert again.held == ()


def test_what_may_not_run_twice_would_have_to_be_held():
    made = backward_from(
        program("a = Exp x", "b = Exp a", "c = Exp b", "g = Mul c b", outputs="g"), 3
    )
    once = [dataclasses.replace(s, recomputable=s.name != "a") for s in made.steps]
    again = explain(dataclasses.replace(made, steps=tuple(once)), "b").again

    assert again.steps == ("b",)
    assert (again.held, again.held_bytes) == (("a",), 64)


@pytest.mark.parametrize(
    ("tensor", "obstacle"),
    [
        ("x", "no step computes it: it is always alive"),
        ("g1", "it is computed in backward"),
        ("g0", "it is computed in backward"),
    ],
)
def test_values_that_there_is_no_point_in_computing_again(tensor, obstacle):
    facts = explain(chain(2), tensor)

    assert facts.again is None
    assert facts.obstacle == obstacle


def test_a_value_that_backward_does_not_read():
    made = backward_from(program("a = Exp x", "b = Exp a", "g = Mul b x", outputs="g"), 2)

    assert explain(made, "a").obstacle == "backward does not read it"


def test_outputs_and_random_values():
    made = backward_from(program("a = Exp x", "y = Exp a", "g = Mul y a", outputs="y g"), 2)
    once = [dataclasses.replace(s, recomputable=s.name != "a") for s in made.steps]
    made = dataclasses.replace(made, steps=tuple(once))

    assert explain(made, "y").obstacle == "it is an output: it stays to the end"
    assert explain(made, "a").obstacle == Why.ONCE.value


def test_a_view_is_explained_by_its_storage():
    made = backward_from(
        program("a = Exp x", "y = Exp r", "g = Mul y r", outputs="g", views={"r": "a"}), 2
    )
    facts = explain(made, "r")

    assert (facts.value, facts.storage, facts.producer) == ("r", "a", "a")
    assert [r.step for r in facts.readers] == ["y", "g"]


def test_a_value_that_does_not_exist():
    with pytest.raises(UsageError, match="no value 'h22'; did you mean 'h2'"):
        explain(chain(2), "h22")

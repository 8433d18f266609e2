"""The facts about one value, worked by hand."""

from __future__ import annotations

import dataclasses

import pytest
from programs import program
from training_programs import backward_from, chain

from gradtool.errors import UsageError
from gradtool.planning.recompute.explain import explain
from gradtool.planning.recompute.mirror import Choice, Decision, Why, decide
from gradtool.planning.recompute.mirrored import mirrored
from gradtool.planning.recompute.policy import POLICIES
from gradtool.planning.schedule import MIRRORED, Schedule


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


def test_a_workspace_is_explained_by_its_step():
    made = backward_from(
        program("a = Exp x", "b = Exp a", "g = Mul b a", outputs="g", work={"b": 256}), 2
    )
    facts = explain(made, "b (workspace)")

    assert (facts.region, facts.bytes, facts.producer) == ("workspace", 256, "b")
    assert (facts.born, facts.last, facts.at_peak, facts.kind) == (1, 1, True, None)
    with pytest.raises(UsageError, match="no value"):
        explain(made, "a (workspace)")


@pytest.mark.parametrize("name", ["h2_mirror", "h2_recompute", "h2_recompute_3", "h2_mirror_2"])
def test_what_a_plan_computes_again_is_explained_by_what_it_is_an_instance_of(name):
    facts = explain(chain(3), name)

    assert (facts.value, facts.storage, facts.instance_of) == (name, "h2", "h2")
    assert dataclasses.replace(facts, value="h2", instance_of=None) == explain(chain(3), "h2")


def test_a_value_whose_own_name_ends_like_an_instance_is_itself():
    made = backward_from(program("a = Exp x", "a_mirror = Exp a", "g = Mul a_mirror a",
                                 outputs="g"), 2)  # fmt: skip

    assert explain(made, "a_mirror").instance_of is None
    assert explain(made, "a_mirror").born == 1


def test_values_that_lie_in_one_place_in_turn():
    """b is written over a, and is alive at the peak: the place goes by its name."""
    made = program("a = Exp x", "b = Tanh a", "c = Exp b", "g = Mul c b", outputs="g",
                   in_place=True)  # fmt: skip
    made = backward_from(made, 3)
    a, b = explain(made, "a"), explain(made, "b")

    assert (a.born, a.last, a.at_peak) == (0, 1, False)
    assert (b.born, b.last, b.at_peak) == (1, 3, True)
    assert a.shared == b.shared
    assert (a.shared.name, a.shared.first, a.shared.last, a.shared.also) == ("b", 0, 3, ("a",))


def chosen(program, again):
    """A decision by which the steps `again` run again, and the other forward ones do not."""
    forward = [step for step in program.steps if step.stage == "forward"]
    return Decision(
        tuple(
            Choice(s.name, s.op, s.name in again, Why.CHEAPER if s.name in again else Why.POLICY)
            for s in forward
        ),
        (tuple(again),),
    )


def test_a_step_that_runs_again_for_what_is_made_of_its_value():
    """Only forward reads m; t is made of m and read in backward."""
    made = backward_from(
        program("h = MatMul x w", "m = Exp h", "t = Tanh m", "y = MatMul t w", "z = MatMul y w",
                "g = Mul z y", "k = Mul g t", outputs="k", parameters="w"), 5,
    )  # fmt: skip
    decision = chosen(made, ["m", "t"])

    def told(name, order):
        schedule = Schedule.of(order, MIRRORED)
        facts = explain(made, name, decision=decision, schedule=schedule)
        return facts.mirrored, facts.applied, facts.through, facts.obstacle

    again, kept = (0, 1, 2, 3, 4, 5, 1, 2, 6), range(7)
    assert told("m", again) == (True, True, "t", None)
    assert told("t", again) == (True, True, None, None)
    assert told("h", again) == (False, False, "t", None)
    assert told("m", kept) == (True, False, "t", None)
    assert told("h", kept) == (False, False, None, "backward does not read it")
    assert explain(made, "m", decision=decision).again.steps == ("h", "m")


def test_an_output_that_runs_again_for_what_is_made_of_it():
    made = backward_from(
        program("r = Exp x", "t = Tanh r", "y = MatMul t w", "g = Mul y t", outputs="g r",
                parameters="w"), 3,
    )  # fmt: skip
    facts = explain(made, "r", decision=chosen(made, ["r", "t"]))

    assert (facts.mirrored, facts.through) == (True, "t")
    assert facts.obstacle == "it is an output: it stays to the end"
    assert facts.again is None


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

"""Echo's decision: the known answers of MXNet's own tests, and its rule on small graphs."""

from __future__ import annotations

import random

import pytest
from conftest import trials
from echo import Echo
from graphs import parse
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import program
from random_programs import ONE, TWO
from training_programs import backward_from, training_programs

import gradtool as gt
from gradtool.planning.recompute.mirror import Why, decide
from gradtool.planning.recompute.policy import POLICIES, Policy, marks
from gradtool.program.flatten import flatten

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}
MIRROR = POLICIES["mirror"]


def training(text, weights="", **options):
    """All nodes of a training graph without a loss, as steps."""
    model = gt.grad(parse(text, weights), head_grads=True, **options).model
    return flatten(model, views=False)


def by_output(nodes, decision):
    """The decision by the first value that a step computes."""
    first = {s.name: nodes.values[next(s.writes)].name for s in nodes.steps}
    return {first[c.step]: int(c.mirrored) for c in decision.choices}


def whys(nodes, decision):
    first = {s.name: nodes.values[next(s.writes)].name for s in nodes.steps}
    return {first[c.step]: c.why for c in decision.choices}


# ------------------------------------------------------------------- MXNet's known answers


def test_mxnet_a_sum_of_two_layers_is_not_mirrored():
    """Keeping the sum frees both products, keeping the tanh frees the sum: no benefit."""
    nodes = training(
        """g (float[8, 4096] x, float[8, 4096] y, float[4096, 4096] v, float[4096, 4096] w) => (o) {
            a = Gemm (x, v) b = Gemm (y, w) s = Add (a, b) o = Tanh (s)
        }""",
        input_grad=["v", "w"],
    )

    assert by_output(nodes, decide(nodes, MIRROR)) == {"a": 0, "b": 0, "s": 0, "o": 0}


def test_mxnet_five_sums_that_share_a_large_operand_are_mirrored_together():
    branches = range(5)
    ends = ", ".join(f"o{i}" for i in branches)
    rows = ", ".join(f"float[1, 4096] y{i}" for i in branches)
    body = " ".join(f"s{i} = Add (x, y{i}) o{i} = Tanh (s{i})" for i in branches)
    nodes = training(
        f"g (float[5, 4096] x, {rows}) => ({ends}) {{ {body} }}", input_grad=["x", "y*"]
    )
    decision = decide(nodes, MIRROR)

    assert set(by_output(nodes, decision).values()) == {1}
    assert len(decision.choices) == 10


def test_mxnet_of_two_tanhs_before_a_layer_the_second_is_mirrored():
    """The gradient of the layer reads z, and z again costs only y, which is kept anyway."""
    nodes = training(
        """g (float[8, 4096] x, float[4096, 4096] w) => (o) {
            y = Tanh (x) z = Tanh (y) o = Gemm (z, w)
        }""",
        input_grad=["x", "w"],
    )
    decision = decide(nodes, MIRROR)

    assert by_output(nodes, decision) == {"y": 0, "z": 1, "o": 0}
    assert whys(nodes, decision) == {"y": Why.FREED, "z": Why.CHEAPER, "o": Why.POLICY}


# ------------------------------------------------------------------------------ the rule


def test_readers_of_a_value_share_the_decision_about_its_producer():
    """From a's side alone h would stay; through h the other branch belongs to the same question.

    h takes as much as x, and both its readers see it kept or both do not.
    """
    nodes = training(
        """g (float[8, 64] x, float[64, 64] v, float[64, 64] w) => (a, b) {
            h = Tanh (x) p = Exp (h) q = Exp (h) a = Gemm (p, v) b = Gemm (q, w)
        }""",
        "v w",
        input_grad=["x"],
    )

    assert by_output(nodes, decide(nodes, MIRROR)) == {"h": 0, "p": 1, "q": 1, "a": 0, "b": 0}


def test_groups_are_what_mirrored_steps_read_from_each_other():
    nodes = training(
        """g (float[8, 64] x, float[64, 64] v, float[64, 64] w) => (b) {
            p = Sin (x) q = Sin (p) a = Gemm (q, v) r = Sin (a) b = Gemm (r, w)
        }""",
        "v w",
        input_grad=["x"],
    )
    decision = decide(nodes, MIRROR)
    p, q, _, r, _ = (c.step for c in decision.choices)

    assert decision.groups == ((p, q), (r,))
    assert [c.mirrored for c in decision.choices] == [True, True, False, True, False]
    assert decision.mirrored == 3


@pytest.mark.parametrize(("call", "mirrored"), [("Size a", 0), ("MatMul a w", 1)])
def test_a_read_of_the_shape_alone_needs_no_data(call, mirrored):
    """Keeping s frees a, unless somebody else needs the data of a."""
    nodes = program(
        "a = MatMul x w",
        f"n = {call}",
        "s = Exp a",
        "y = MatMul s w",
        outputs="y n",
        parameters="w",
    )

    assert by_output(nodes, decide(nodes, MIRROR))["s"] == mirrored


def test_what_is_named_wins_over_the_policy():
    nodes = training(
        """g (float[8, 64] x, float[64, 64] v, float[64, 64] w) => (b) {
            p = Gemm (x, v) q = Tanh (p) r = Tanh (q) b = Gemm (r, w)
        }""",
        "v w",
    )
    free = by_output(nodes, decide(nodes, MIRROR))
    kept = decide(nodes, MIRROR, marks(nodes, keep=["r"]))
    forced = decide(nodes, MIRROR, marks(nodes, drop=["p"]))

    assert free["r"] == 1
    assert (by_output(nodes, kept)["r"], whys(nodes, kept)["r"]) == (0, Why.NAMED)
    assert whys(nodes, forced)["p"] is not Why.POLICY


def test_random_operators_run_once_even_if_they_are_named():
    nodes = training(
        """g (float[8, 64] x, float[64, 64] v) => (y) {
            n = RandomNormalLike (x) s = Mul (n, x) y = Gemm (s, v)
        }""",
        "v",
    )
    decision = decide(nodes, MIRROR, marks(nodes, drop=["n"]))

    assert (by_output(nodes, decision)["n"], whys(nodes, decision)["n"]) == (0, Why.ONCE)


def test_a_loop_is_one_step_and_runs_once():
    nodes = training(
        """g (float[8, 64] x, float[64, 64] v) => (y) <bool c = {1}> {
            e = Exp (x)
            z = If (c) <then_branch = t () => (a) { a = Tanh (e) },
                        else_branch = u () => (b) { b = Neg (e) }>
            y = Gemm (z, v)
        }""".replace("<bool c = {1}>", "").replace("float[8, 64] x,", "float[8, 64] x, bool c,"),
        "v",
        input_grad=["x"],
    )
    decision = decide(nodes, MIRROR)

    assert by_output(nodes, decision)["z"] == 0
    assert whys(nodes, decision)["z"] is Why.POLICY


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(POLICIES))
def test_diamonds_are_walked_once(name):
    """A chain of 2 000 diamonds has 2²⁰⁰⁰ paths."""
    steps = ["a0 = Exp x"]
    for i in range(2000):
        steps += [f"b{i} = Exp a{i}", f"c{i} = Tanh a{i}", f"a{i + 1} = Add b{i} c{i}"]
    nodes = program(*steps, outputs="a2000")

    assert len(decide(nodes, POLICIES[name]).choices) == len(steps)


@settings(max_examples=trials(150), **EXAMPLES)
@given(training_programs(most=14), st.sets(st.sampled_from(ONE + TWO)))
def test_the_decision_is_that_of_the_algorithm_told_literally(drawn, heavy):
    policy = Policy("drawn", frozenset(heavy), twice=False, reason="", source="")
    decision = decide(drawn, policy)

    assert {n for n, yes in decision.marks.items() if yes} == Echo(drawn, policy).mirrored()


def branches(seed):
    """A graph of few sizes, whose steps share what they read, and some backward readers."""
    draw = random.Random(seed)  # noqa: S311 - a sample
    names, sizes, steps = ["x", "u"], {"x": 16, "u": 32}, []
    for index in range(draw.randint(3, 11)):
        op = draw.choice(("Tanh", "Tanh", "Exp", "Add", "Mul", "MatMul"))
        reads = draw.choices(names[-4:], k=1 if op in {"Tanh", "Exp"} else 2)
        names.append(f"v{index}")
        sizes[names[-1]] = draw.choice((16, 16, 32, 48))
        steps.append(f"v{index} = {op} {' '.join(reads)}")
    forward = len(steps)
    steps += [f"g{i} = Neg {draw.choice(names)}" for i in range(draw.randint(1, 5))]
    ends = [f"g{i}" for i in range(len(steps) - forward)] + [names[-1]] * draw.randint(0, 1)
    made = program(*steps, outputs=" ".join(ends), inputs="x u", sizes=sizes)
    return backward_from(made, forward)


def test_the_decision_is_that_of_the_algorithm_told_literally_where_values_are_shared():
    for seed in range(400):
        made = branches(seed)

        assert {n for n, yes in decide(made, MIRROR).marks.items() if yes} == Echo(
            made, MIRROR
        ).mirrored(), seed


@settings(max_examples=trials(100), **EXAMPLES)
@given(training_programs())
def test_every_forward_step_is_decided_once_and_only_what_may_run_twice_is_mirrored(drawn):
    for policy in POLICIES.values():
        decision = decide(drawn, policy)

        assert [c.step for c in decision.choices] == [
            s.name for s in drawn.steps if s.stage == "forward"
        ]
        assert all(policy(s) for s in drawn.steps if decision.marks.get(s.name))
        assert decision == decide(drawn, policy)

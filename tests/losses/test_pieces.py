"""Activations written in pieces have the loss and the gradients of those that are one operator."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from conftest import sampled
from graphs import floats, parse

import gradtool as gt
from gradtool.losses.output_heads import ending
from gradtool.losses.pieces import piecewise

SHIFTS = {
    "none": "s = Identity (l)",
    "max": "m = ReduceMax <keepdims = 1> (l, ax) s = Sub (l, m)",
    "flat max": "m0 = ReduceMax <keepdims = 0> (l, ax) m = Unsqueeze (m0, ax) s = Sub (l, m)",
    "negated": "m0 = ReduceMax <keepdims = 1> (l, ax) m = Neg (m0) s = Add (l, m)",
    "of all": "m = ReduceMax <keepdims = 1> (l) s = Sub (l, m)",
}
SUMS = {
    "kept": "{t} = ReduceSum <keepdims = 1> ({e}, ax)",
    "flat": "{t}0 = ReduceSum <keepdims = 0> ({e}, ax) {t} = Unsqueeze ({t}0, ax)",
    "expanded": "{t}0 = ReduceSum <keepdims = 1> ({e}, ax) sh = Shape (l) {t} = Expand ({t}0, sh)",
    "L1": "{t} = ReduceL1 <keepdims = 1> ({e}, ax)",
    "small": "{t}0 = ReduceSum <keepdims = 1> ({e}, ax) {t} = Add ({t}0, tiny)",
    "reshaped": "{t}0 = ReduceSum <keepdims = 0> ({e}, ax) k = ReduceMax <keepdims = 1> (l, ax) "
    "like = Shape (k) {t} = Reshape ({t}0, like)",
}
POWERS = {
    "plain": "e = Exp (s)",
    "copied": "e0 = Exp (s) e = Identity (e0)",
    "cast": "d = Cast <to = 11> (s) e0 = Exp (d) e = Cast <to = 1> (e0)",
}
ENDS = {
    "quotient": "y = Div (e, t)",
    "reciprocal": "r = Reciprocal (t) y = Mul (e, r)",
    "reciprocal first": "r = Reciprocal (t) y = Mul (r, e)",
    "one over": "r = Div (one, t) y = Mul (e, r)",
    "power": "r = Pow (t, minus) y = Mul (e, r)",
    "less log": "g = Log (t) y0 = Sub (s, g) y = Exp (y0)",
    "log": "g = Log (t) y = Sub (s, g)",
    "log of quotient": "p = Div (e, t) y = Log (p)",
    "logsumexp": "g = ReduceLogSumExp <keepdims = 1> (s, ax) y = Sub (s, g)",
    "cast": "p = Div (e, t) q = Cast <to = 11> (p) y = Cast <to = 1> (q)",
}  # fmt: skip
LOGS = ("log", "log of quotient", "logsumexp")
HEAD = (
    "g (float[{sizes}] x, float[3, 3] w) => (y) <int64[1] ax = {{{axis}}}, float one = {{1}}, "
    "float minus = {{-1}}, float tiny = {{1e-12}}> {{ l = MatMul (x, w) {body} }}"
)
PLACES = {"last": ("N, 3", -1), "second": ("N, 5, 3", 1)}


def model(body, place):
    sizes, axis = PLACES[place]
    return parse(HEAD.format(sizes=sizes, axis=axis, body=body), "w")


def gradient(built, place):
    training = gt.grad(built)
    sizes = (4, 3) if place == "last" else (4, 5, 3)
    labels = np.array([0, 2, 1, 1]) if place == "last" else np.arange(12).reshape(4, 3) % 5
    found = gt.run(training, {"x": floats(*sizes, seed=7), "labels": labels}).gradients
    return training.loss_said, found["w"]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("shift", "end"), sampled(itertools.product(SHIFTS, ENDS)))
def test_softmax_in_pieces_has_the_loss_and_gradients_of_the_operator(shift, end):
    ways = [*itertools.product(POWERS, SUMS, PLACES)]
    draw = np.random.default_rng([*SHIFTS].index(shift) * len(ENDS) + [*ENDS].index(end))
    for power, total, place in [ways[i] for i in draw.choice(len(ways), 4, replace=False)]:
        pieces = " ".join(
            (SHIFTS[shift], POWERS[power], SUMS[total].format(t="t", e="e"), ENDS[end])
        )
        axis = PLACES[place][1]
        op = "LogSoftmax" if end in LOGS else "Softmax"

        said, found = gradient(model(pieces, place), place)
        wanted_said, wanted = gradient(model(f"y = {op} <axis = {axis}> (l)", place), place)

        assert said == wanted_said
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        "n = Neg (l) e = Exp (n) d = Add (e, one) y = Div (one, d)",
        "n = Mul (l, minus) e = Exp (n) d = Add (one, e) y = Reciprocal (d)",
        "e = Exp (l) d = Add (e, one) y = Div (e, d)",
        "e = Exp (l) d = Add (one, e) r = Reciprocal (d) y0 = Mul (e, r) y = Identity (y0)",
    ],
)
def test_a_logistic_function_in_pieces_is_one(body):
    built = model(body, "last")

    assert ending(built.graph.outputs[0]).activation == "Sigmoid"
    assert gt.grad(built).loss_said.startswith("binary cross-entropy of probabilities")


@pytest.mark.parametrize(
    "body",
    [
        "e = Exp (l) k = Exp (x) t = ReduceSum (k, ax) y = Div (e, t)",  # a sum of others
        "e = Tanh (l) t = ReduceSum (e, ax) y = Div (e, t)",  # no powers
        "e = Exp (l) t = ReduceMax (e, ax) y = Div (e, t)",  # no sum
        "e = Exp (l) t0 = ReduceSum (e, ax) t = Add (t0, one) y = Div (e, t)",  # and one more
        "e = Exp (l) t = ReduceSum (e, ax) y = Div (t, e)",  # upside down
        "e = Exp (l) t = ReduceSum (e, ax) g = Log (t) y = Sub (x, g)",  # of other scores
        "e = Exp (l) t = ReduceSum (e, ax) g = Log (t) y = Sub (g, l)",
        "e = Exp (l) d = Add (e, one) y = Div (one, d)",  # the complement
    ],
)
def test_what_only_looks_alike_is_none(body):
    assert piecewise(model(body, "last").graph.outputs[0]) is None


def test_a_maximum_along_another_axis_stays_in_the_scores():
    body = (
        "m = ReduceMax <keepdims = 1> (l, bx) s = Sub (l, m) e = Exp (s) "
        "t = ReduceSum <keepdims = 1> (e, ax) y = Div (e, t)"
    ).replace("bx", "b0")
    built = model("b0 = Constant <value_ints = [0]> () " + body, "last")

    assert piecewise(built.graph.outputs[0]).scores.name == "s"


@pytest.mark.parametrize("batch", ["N", "1"])
@pytest.mark.parametrize(
    "body", ["h = MatMul (x, v) t = Sin (h) y = Mul (t, t)", "h = Mul (x, x) y = ReduceSum (h, a)"]
)
def test_a_score_is_warned_of_for_the_open_and_the_fixed_batch(batch, body):
    built = parse(
        f"g (float[{batch}, 3] x, float[3, 1] v) => (y) <int64[1] a = {{1}}> {{ {body} }}", "v"
    )
    training = gt.grad(built, input_grad=["x"])

    assert training.guessed
    assert any(line.startswith("no loss found: using the ") for line in training.warnings)
    assert not gt.grad(built, loss="mean:y", input_grad=["x"]).guessed


@pytest.mark.parametrize(
    "body",
    ["h = MatMul (x, v) y = ReduceMean <keepdims = 0> (h)",
     "h = MatMul (x, v) r = ReduceSum (h, a) y = Mul (r, half)"],
)  # fmt: skip
def test_a_sum_over_samples_is_the_loss(body):
    built = parse(
        "g (float[4, 3] x, float[3, 1] v) => (y) <int64[2] a = {0, 1}, float half = {0.5}> "
        f"{{ {body} }}",
        "v",
    )

    assert not gt.grad(built).guessed

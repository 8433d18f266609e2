from __future__ import annotations

import pytest
from graphs import parse

import gradtool as gt
from gradtool.errors import Unreachable, UsageError

MODEL = """g (
    float[2, 3] image, float[2] scale, int64[2] ids,
    float[3, 4] layer1_weight, float[4] layer1_bias, float[4, 4] layer2_weight, float two
) => (y) {
    [first] a = MatMul (image, layer1_weight)
    [add] b = Add (a, layer1_bias)
    [tanh] c = Tanh (b)
    [second] d = MatMul (c, layer2_weight)
    [twice] y = Mul (d, two)
}"""
WEIGHTS = "layer1_weight layer1_bias layer2_weight two"


def chosen(**options):
    return list(gt.grad(parse(MODEL, WEIGHTS), loss="sum:y", **options).gradients)


def test_the_parameters_are_chosen_by_default():
    training = gt.grad(parse(MODEL, WEIGHTS), loss="sum:y")

    assert list(training.gradients) == ["layer1_weight", "layer1_bias", "layer2_weight"]
    assert training.candidates == 3
    assert training.warnings == (
        "scalar initializers are not trained; --wrt NAME trains them: two",
    )


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["layer1_*"], ["layer1_weight", "layer1_bias"]),
        (["*_weight"], ["layer1_weight", "layer2_weight"]),
        (["*_bias", "*_weight"], ["layer1_bias", "layer1_weight", "layer2_weight"]),
        (["layer?_bias", "layer1_bias"], ["layer1_bias"]),
        (["image"], ["image"]),
        (["two"], ["two"]),
        (["c", "layer2_weight"], ["c", "layer2_weight"]),
        (["layer[2]_weight"], ["layer2_weight"]),
    ],
)
def test_names_and_globs_choose(patterns, names):
    assert chosen(wrt=patterns) == names


def test_a_glob_chooses_no_interior_values_and_nothing_that_gradtool_added():
    training = gt.grad(parse(MODEL, WEIGHTS), loss="mse", wrt=["*"])

    assert set(training.gradients) == {
        "layer1_weight", "layer1_bias", "layer2_weight", "two", "image"
    }  # fmt: skip
    assert training.warnings == ("left out, the loss does not depend on them: scale",)


def test_an_exact_name_wins_over_reading_it_as_a_glob():
    model = parse("g (float[3] x, float[3] w) => (y) { y = Mul (x, w) }")
    model.graph.inputs[0].name = "x[0]"
    model.graph.inputs[1].name = "x0"

    assert list(gt.grad(model, loss="sum:y", wrt=["x[0]"]).gradients) == ["x[0]"]


def test_a_name_given_beside_a_glob_is_still_asked_for_by_name():
    for patterns in (["scale", "*"], ["*", "scale"]):
        with pytest.raises(Unreachable, match="the loss does not depend on scale"):
            chosen(wrt=patterns)


def test_input_gradients_come_on_top_of_the_parameters():
    names = chosen(input_grad=["im*"])

    assert names == ["layer1_weight", "layer1_bias", "layer2_weight", "image"]


def test_without_parameters_the_inputs_are_chosen_and_it_is_said():
    model = parse("g (float[3] x, float[3] w, int64[3] i) => (y) { y = Mul (x, w) }")
    training = gt.grad(model, loss="mse")

    assert list(training.gradients) == ["x", "w"]
    assert training.warnings == ("no trainable parameter: differentiating by the float inputs",)


def test_running_statistics_are_no_parameters():
    model = parse(
        """g (float[2, 3] x, float[3] scale, float[3] bias, float[3] mean, float[3] var) => (y) {
            y = BatchNormalization (x, scale, bias, mean, var)
        }""",
        weights="scale bias mean var",
    )

    assert list(gt.grad(model, loss="sum:y").gradients) == ["scale", "bias"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wrt": ["layer1_wieght"]}, r"--wrt layer1_wieght: no such value; did you mean 'layer1"),
        ({"wrt": ["nothing*"]}, r"--wrt nothing\*: no such value \(there are "),
        ({"wrt": ["ids"]}, "'ids' is INT64: only floats have gradients"),
        ({"input_grad": ["ids"]}, "--input-grad ids: 'ids' is INT64: only floats have gradients"),
        ({"input_grad": ["layer1_bias"]}, "--input-grad layer1_bias: no input; --wrt is for init"),
        ({"input_grad": ["labels"]}, "--input-grad labels: no such value"),
        ({"no_grad": ["laier1*"]}, r"--no-grad laier1\*: no such value"),
        ({"no_grad": ["tanh:1"]}, r"--no-grad tanh:1: no such value; did you mean 'tanh:0'\?"),
    ],
)
def test_a_pattern_that_cannot_be_is_an_error(options, message):
    with pytest.raises(UsageError, match=message):
        chosen(**options)


def test_a_frozen_parameter_is_left_out():
    assert chosen(no_grad=["layer1_*"]) == ["layer2_weight"]


@pytest.mark.parametrize("cut", ["c", "tanh:0", "tanh:*", "layer1_*"])
def test_a_frozen_part_is_left_out(cut):
    training = gt.grad(parse(MODEL, WEIGHTS), loss="sum:y", no_grad=[cut])

    assert list(training.gradients) == ["layer2_weight"]
    assert len(training.warnings) == 1  # of the scalar


def test_nothing_left_is_an_error():
    with pytest.raises(Unreachable, match="the loss depends on no value to differentiate by"):
        chosen(wrt=["scal*"])

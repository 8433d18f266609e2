from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from graphs import floats, parse

import gradtool as gt
from gradtool.emit.builder import Builder
from gradtool.losses.attach import attach

FLAT = "g (float[N, 3] x, float[3, 4] w, float[3, 1] v) => (y) {{ {} }}"
IMAGE = "g (float[N, 2, 8, 8] x, float[5, 2, 1, 1] w, float[1, 2, 1, 1] v) => (y) {{ {} }}"
LINE = "g (float[N, 2, 8] x, float[5, 2, 1] w, float[8, 6] v) => (y) {{ {} }}"
CE, MSE, BCE = "softmax cross-entropy", "mean squared error", "binary cross-entropy"
NLL = "negative log-likelihood"


def chosen(text, weights="w v"):
    return attach(Builder(parse(text, weights), stage="forward"), "auto").said


@pytest.mark.parametrize(
    ("text", "kind", "labels"),
    [
        (FLAT.format("y = MatMul (x, v)"), MSE, "float[N, 1]"),
        (FLAT.format("h = MatMul (x, v) y = Relu (h)"), MSE, "float[N, 1]"),
        (FLAT.format("h = MatMul (x, v) y = Squeeze (h)"), MSE, "float[N]"),
        (
            FLAT.format("h = MatMul (x, v) s = Constant <value_ints = [-1]> () y = Reshape (h, s)"),
            MSE,
            "float[N]",
        ),
        (FLAT.format("h = MatMul (x, v) y = Sigmoid (h)"), BCE, "float[N, 1]"),
        (FLAT.format("h = MatMul (x, w) y = Sigmoid (h)"), BCE, "float[N, 4]"),
        (FLAT.format("h = MatMul (x, v) s = Sigmoid (h) y = Squeeze (s)"), BCE, "float[N]"),
        (FLAT.format("h = MatMul (x, v) y = Softmax (h)"), MSE, "float[N, 1]"),
        (FLAT.format("h = MatMul (x, v) y = LogSoftmax (h)"), MSE, "float[N, 1]"),
        (FLAT.format("h = MatMul (x, w) y = LogSoftmax (h)"), NLL, "int64[N]"),
        (FLAT.format("h = MatMul (x, w) y = Mul (h, h)"), "the mean", ""),
        (FLAT.format("h = Exp (x) y = Softmax (h)"), CE, "int64[N]"),
        (IMAGE.format("y = Conv (x, w)"), CE, "int64[N, 8, 8]"),
        (IMAGE.format("y = Conv (x, v)"), MSE, "float[N, 1, 8, 8]"),
        (IMAGE.format("h = Conv (x, w) y = Softmax <axis = 1> (h)"), CE, "int64[N, 8, 8]"),
        (
            IMAGE.format("h = Conv (x, w) y = Transpose <perm = [0, 2, 3, 1]> (h)"),
            CE,
            "int64[N, 8, 8]",
        ),
        (IMAGE.format("h = Conv (x, w) y = LogSoftmax <axis = 1> (h)"), NLL, "int64[N, 8, 8]"),
        (IMAGE.format("h = Conv (x, v) y = Sigmoid (h)"), BCE, "float[N, 1, 8, 8]"),
        (LINE.format("y = Conv (x, w)"), CE, "int64[N, 8]"),
        (LINE.format("y = MatMul (x, v)"), CE, "int64[N, 2]"),
    ],
)
def test_the_end_of_a_model_says_its_loss(text, kind, labels):
    said = chosen(text)

    assert said.startswith(kind)
    assert said.endswith(f"labels: labels {labels})" if labels else "(auto)")


def test_one_class_is_said():
    assert chosen(FLAT.format("y = MatMul (x, v)")) == (
        "mean squared error (auto, output 'y', of one class, labels: labels float[N, 1])"
    )


def test_one_sample_of_one_class_is_no_loss():
    said = chosen("g (float[1, 3] x, float[3, 1] v) => (y) { y = MatMul (x, v) }", "v")

    assert said.startswith(MSE)


def test_one_number_that_no_weight_makes_is_the_loss():
    text = "g (float[1, 3] x, float[3, 1] t) => (y) { y = MatMul (x, t) }"

    assert chosen(text, "") == "the scalar output 'y' (auto)"


def test_the_first_output_that_says_its_loss_has_it():
    text = """g (float[N, 3] x, float[3, 4] w) => (features, y) {
        h = MatMul (x, w) features = Tanh (h) y = MatMul (features, u)
    }""".replace("w) =>", "w, float[4, 2] u) =>")

    assert chosen(text, "w u") == (
        "softmax cross-entropy (auto, output 'y', one of 2, labels: labels int64[N])"
    )


TWO = """g (float[N, 3] x, float[3, 1] v, float[1] one) => (y, i) {
    h = MatMul (x, v) p = Sigmoid (h) q = Sub (one, p)
    y = Concat <axis = 1> (q, p) i = ArgMax <axis = 1> (y)
}"""


def test_an_event_beside_its_complement_has_the_cross_entropy_of_its_score():
    model = parse(TWO, "v")
    one = next(v for v in model.graph.inputs if v.name == "one")
    model.graph.inputs.remove(one)
    one.const_value = ir.Tensor(np.ones(1, np.float32), name="one")
    model.graph.register_initializer(one)
    training = gt.grad(model, wrt=["v"])
    x = floats(3, 3) * 40
    result = gt.run(training, {"x": x, "labels": np.array([0, 1, 1])})
    s = (x @ model.graph.initializers["v"].const_value.numpy()).astype(np.float64)[:, 0]
    expected = np.logaddexp(0, np.where([1, 0, 0], s, -s)).mean()

    assert "its Sigmoid left out" in training.loss_said
    assert result.loss == pytest.approx(expected, rel=1e-5)


def test_shares_of_which_the_largest_is_taken_are_probabilities():
    text = """g (float[N, 3] x, float[3, 4] w) => (y, i) {
        h = MatMul (x, w) e = Softplus (h) s = ReduceSum <keepdims = 1> (e, a) y = Div (e, s)
        i = ArgMax <axis = 1> (y)
    }""".replace("(y, i) {", "(y, i) <int64[1] a = {1}> {")
    training = gt.grad(parse(text, "w"))
    x, labels = floats(3, 3), np.array([0, 3, 1])
    found = gt.run(training, {"x": x, "labels": labels})
    shares = found.outputs["y"][np.arange(3), labels]

    assert training.loss_said.startswith("negative log-likelihood of probabilities (auto")
    assert found.loss == pytest.approx(-np.log(shares).mean(), rel=1e-5)

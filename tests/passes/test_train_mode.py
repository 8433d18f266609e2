"""Training forms asked for: batch statistics, dropping, and what is said of random numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from graphs import floats, parse, stock

import gradtool as gt

NORM = """g (float[N, 3, 2] x, float[3] s, float[3] b, float[3] m, float[3] v) => (y) {
    [norm] h = BatchNormalization <momentum = 0.8> (x, s, b, m, v) y = Tanh (h)
}"""
DROPOUT = "g (float[N, 40] x, float[40] w) => (y) { h = Mul (x, w) y = Dropout (h RATIO) }"


def dropout(given=", r", **options):
    text = DROPOUT.replace(" RATIO", given)
    if given:
        text = text.replace("=> (y) {", "=> (y) <float r = {0.25}, bool t = {0}> {", 1)
    return gt.grad(parse(text, "w"), loss="sum:y", train_mode=True, **options)


def test_norms_go_by_the_batch():
    model = parse(NORM, "s b m v")
    training = gt.grad(model, loss="sum:y", train_mode=True)
    x = floats(5, 3, 2)
    result = gt.run(training, {"x": x})
    weights = {n: v.const_value.numpy() for n, v in model.graph.initializers.items()}
    mean, var = x.mean((0, 2)), x.var((0, 2))
    n = (x - mean[:, None]) / np.sqrt(var + 1e-5)[:, None]
    y = np.tanh(n * weights["s"][:, None] + weights["b"][:, None])

    np.testing.assert_allclose(result.outputs["y"], y, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.gradients["b"], (1 - y * y).sum((0, 2)), rtol=1e-4, atol=1e-5)
    state = json.loads(training.model.metadata_props["gradtool.state"])
    assert state == {"m": "m_next", "v": "v_next"}
    np.testing.assert_allclose(
        result.outputs["m_next"], 0.8 * weights["m"] + 0.2 * mean, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        result.outputs["v_next"], 0.8 * weights["v"] + 0.2 * var, rtol=1e-4, atol=1e-6
    )


def test_stock_onnxruntime_trains_the_norms_too():
    pytest.importorskip("onnxruntime")
    training = gt.grad(parse(NORM, "s b m v"), loss="sum:y", train_mode=True)
    x = floats(5, 3, 2)
    ours, theirs = gt.run(training, {"x": x}), stock(training.model, x=x)

    for value, output in training.gradients.items():
        np.testing.assert_allclose(ours.gradients[value], theirs[output], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.outputs["v_next"], theirs["v_next"], rtol=1e-5)


def test_without_it_the_file_decides_and_it_is_said():
    training = gt.grad(parse(NORM, "s b m v"), loss="sum:y")

    assert training.warnings == (
        "1 BatchNormalization in inference mode: running statistics are constants (--train-mode)",
    )
    assert "gradtool.state" not in training.model.metadata_props


@pytest.mark.parametrize(("given", "ratio"), [("", 0.5), (", r", 0.25), (", r, t", 0.25)])
def test_dropout_drops_with_the_ratio_of_the_file(given, ratio):
    training = dropout(given)
    x = np.ones((500, 40), np.float32)
    result = gt.run(training, {"x": x})
    weights = training.model.graph.initializers["w"].const_value.numpy()
    kept = result.outputs["y"] / weights

    np.testing.assert_allclose(np.unique(np.round(kept, 4)), [0, 1 / (1 - ratio)], rtol=1e-4)
    assert (kept == 0).mean() == pytest.approx(ratio, abs=0.02)
    np.testing.assert_allclose(result.gradients["w"], kept.sum(0), rtol=1e-4)


def test_what_is_random_is_said():
    text = DROPOUT.replace(" RATIO", ", r, t").replace(
        "=> (y) {", "=> (y) <float r = {0.25}, bool t = {1}> {", 1
    )

    assert gt.grad(parse(text, "w"), loss="sum:y").warnings == (
        "drawn at random, every run differs (fix it by the attribute seed): 1 Dropout",
    )
    assert dropout().warnings == ()


@pytest.mark.parametrize(
    ("body", "warned"),
    [
        ("r = RandomNormalLike (x) y = Mul (x, r)", True),
        ("r = RandomNormalLike <seed = 1.0> (x) y = Mul (x, r)", False),
        ("y = Dropout (x)", False),
        ("r = RandomNormalLike (x) z = Exp (r) y = Neg (x)", False),
    ],
)
def test_only_what_draws_anew_and_is_needed_counts_as_random(body, warned):
    training = gt.grad(parse(f"g (float[3] x) => (y) {{ {body} }}"), loss="sum:y", wrt=["x"])

    assert any("drawn at random" in w for w in training.warnings) == warned


def test_a_model_without_either_is_told_so():
    training = gt.grad(
        parse("g (float[3] x) => (y) { y = Exp (x) }"), loss="sum:y", wrt=["x"], train_mode=True
    )

    (warning,) = training.warnings
    assert warning.startswith("--train-mode: the model has no BatchNormalization and no Dropout (")


def test_a_model_that_trains_already_stays_as_it_is():
    text = NORM.replace("momentum", "training_mode = 1, momentum").replace(
        "h = Batch", "h, m2, v2 = Batch"
    )
    one = gt.grad(parse(text, "s b m v"), loss="sum:y")
    two = gt.grad(parse(text, "s b m v"), loss="sum:y", train_mode=True)

    assert [n.name for n in one.model.graph] == [n.name for n in two.model.graph]
    assert two.warnings == ()


def test_the_model_given_is_left_as_it_is():
    model = parse(NORM, "s b m v")
    gt.grad(model, loss="sum:y", train_mode=True)
    node = model.graph.node("norm")

    assert len(node.outputs) == 1
    assert "training_mode" not in node.attributes

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from graphs import stock
from onnx import helper

import gradtool as gt

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(3, 4)).astype(np.float32)
BIAS = RNG.normal(size=3).astype(np.float32)
X = RNG.normal(size=(5, 4)).astype(np.float32)


@pytest.fixture
def load(tmp_path):
    """A model of one node of ai.onnx.ml on `x` of some type, loaded."""

    def made(op, outputs, *, x=onnx.TensorProto.FLOAT, shape=("N", 4), **attributes):
        node = helper.make_node(op, ["x"], list(outputs), domain="ai.onnx.ml", **attributes)
        graph = helper.make_graph(
            [node], "g", [helper.make_tensor_value_info("x", x, list(shape))],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 1)]
        path = tmp_path / "model.onnx"
        path.write_bytes(
            helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
        )
        return gt.load(path)

    return made


def classifier(load, rows, bias, transform, labels, **options):
    named = "classlabels_ints" if isinstance(labels[0], int) else "classlabels_strings"
    return load(
        "LinearClassifier", ["label", "scores"], coefficients=rows.ravel().tolist(),
        intercepts=bias.tolist(), post_transform=transform, **{named: labels}, **options,
    )  # fmt: skip


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("labels", [[4, 7, 9], ["a", "b", "c"]])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_a_classifier_computes_what_it_did_and_trains(load, transform, labels, kind):
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    model = classifier(load, WEIGHTS, BIAS, transform, labels, x=dtype)
    x = (X * 3).astype(kind)
    before = stock(model, x=x)
    training = gt.grad(model, loss="mse:scores", wrt=["coefficients", "intercepts"])
    target = RNG.normal(size=(5, 3)).astype(np.float32)
    result = gt.run(training, {"x": x, "labels": target})
    theirs = stock(training.model, x=x, labels=target)

    for outputs in (result.outputs, theirs):
        np.testing.assert_allclose(outputs["scores"], before["scores"], rtol=1e-5, atol=1e-6)
        assert [_text(a) for a in outputs["label"]] == [_text(a) for a in before["label"]]
    for name, gradient in result.gradients.items():
        np.testing.assert_allclose(theirs[f"{name}_grad"], gradient, rtol=1e-4, atol=1e-6)
    assert "ai.onnx.ml" not in training.model.graph.opset_imports


def _text(label):
    return label.decode() if isinstance(label, bytes) else str(label)


TWO = np.stack([-WEIGHTS[0], WEIGHTS[0]])
PAIRS = {
    "opposite": (TWO, np.float32([-0.5, 0.5])),
    "one score": (WEIGHTS[:1], BIAS[:1]),
    "others": (WEIGHTS[:2], BIAS[:2]),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_two_classes_compute_what_they_did(load, pair, transform):
    model = classifier(load, *PAIRS[pair], transform, [0, 1])
    before = gt.run(model, {"x": X}).outputs
    training = gt.grad(model, loss="mean:scores", wrt=["x"])
    after = gt.run(training, {"x": X}).outputs

    np.testing.assert_allclose(after["scores"], before["scores"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(after["label"], before["label"])


def test_a_logistic_score_and_its_opposite_are_trained_as_one(load):
    training = gt.grad(classifier(load, *PAIRS["opposite"], "LOGISTIC", [0, 1]))
    labels = np.array([0, 1, 1, 0, 1])
    result = gt.run(training, {"x": X, "labels": labels})
    score = X.astype(np.float64) @ WEIGHTS[0] + 0.5
    p = 1 / (1 + np.exp(-score))

    assert training.loss_said.startswith("softmax cross-entropy (auto, output 'scores', its Soft")
    assert result.loss == pytest.approx(-np.log(np.where(labels, p, 1 - p)).mean(), rel=1e-5)
    np.testing.assert_allclose(
        result.gradients["coefficients"][:, 0], X.T @ (p - labels) / 5, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(result.gradients["intercepts"], [(p - labels).mean()], rtol=1e-4)


@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_a_regressor_has_the_squared_error(load, targets, bias):
    model = load(
        "LinearRegressor", ["y"], coefficients=WEIGHTS[:targets].ravel().tolist(), targets=targets,
        **({"intercepts": BIAS[:targets].tolist()} if bias else {}),
    )  # fmt: skip
    training = gt.grad(model)
    labels = RNG.normal(size=(5, targets)).astype(np.float32)
    result = gt.run(training, {"x": X, "labels": labels})
    y = X @ WEIGHTS[:targets].T + (BIAS[:targets] if bias else 0)

    assert training.loss_said.startswith("mean squared error (auto, output 'y'")
    assert list(training.gradients) == ["coefficients", "intercepts"][: 1 + bias]
    assert result.loss == pytest.approx(((y - labels) ** 2).mean(), rel=1e-5)
    np.testing.assert_allclose(
        result.gradients["coefficients"], X.T @ (2 * (y - labels)) / y.size, rtol=1e-4, atol=1e-6
    )


def test_what_has_no_operators_keeps_its_weights_and_it_is_said(load):
    model = classifier(load, WEIGHTS, BIAS, "SOFTMAX_ZERO", [0, 1, 2])
    training = gt.grad(model, loss="mean:scores", wrt=["x"])

    assert training.warnings == ("LinearClassifier '': SOFTMAX_ZERO: its weights stay constants",)


def test_what_a_scaler_holds_stays_constant(load):
    model = load("Scaler", ["y"], offset=[1.0, 2.0, 3.0, 4.0], scale=[0.5] * 4)
    training = gt.grad(model, loss="sum:y")
    result = gt.run(training, {"x": X})

    assert list(training.gradients) == ["x"]
    np.testing.assert_allclose(result.outputs["y"], (X - np.float32([1, 2, 3, 4])) / 2, rtol=1e-6)


def test_the_model_given_is_left_as_it_is(load):
    model = classifier(load, WEIGHTS, BIAS, "SOFTMAX", [0, 1, 2])
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    gt.grad(model)

    assert ir.to_proto(model).SerializeToString(deterministic=True) == before

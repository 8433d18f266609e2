"""Weights that the file has as attributes of a node, or in place of others that were equal."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import gradtool as gt
from gradtool.io import safetensors
from gradtool.kit.merge import merge_kit
from gradtool.kit.write import write_kit

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((3, 4)).astype(np.float32)
X = RNG.standard_normal((6, 4)).astype(np.float32)


def value(name, shape, kind=1):
    return helper.make_tensor_value_info(name, kind, shape)


def linear(op, rows, bias, **attributes):
    """A model that is one linear model of scikit-learn."""
    outputs = ["label", "scores"] if op == "LinearClassifier" else ["scores"]
    node = helper.make_node(
        op, ["x"], outputs, domain="ai.onnx.ml",
        coefficients=rows.ravel().tolist(), intercepts=bias, **attributes,
    )  # fmt: skip
    given = [value("scores", ["n", None])]
    given += [value("label", ["n"], 7)] if "label" in outputs else []
    graph = helper.make_graph([node], "g", [value("x", ["n", 4])], given)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


MODELS = {
    "regressor": (linear("LinearRegressor", ROWS, [0.1, 0.2, 0.3], targets=3), "mse:scores"),
    "classes": (
        linear("LinearClassifier", ROWS, [0.1, 0.2, 0.3], classlabels_ints=[0, 1, 2],
               post_transform="SOFTMAX"), "ce:scores",
    ),
    "opposite": (
        linear("LinearClassifier", np.stack([-ROWS[0], ROWS[0]]), [-0.5, 0.5],
               classlabels_ints=[0, 1], post_transform="LOGISTIC"), "ce:scores",
    ),
}  # fmt: skip


def outputs(model, x):
    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return dict(
        zip([o.name for o in session.get_outputs()], session.run(None, {"x": x}), strict=False)
    )


@pytest.mark.parametrize("name", MODELS)
def test_coefficients_are_written_into_their_attributes(name, tmp_path):
    proto, loss = MODELS[name]
    path, out, merged = (tmp_path / f"{each}.onnx" for each in ("m", "out", "merged"))
    path.write_bytes(proto.SerializeToString())
    graph = gt.grad(gt.load(path), loss=loss, optimizer="sgd")
    labels = np.zeros((6, 3), np.float32) if loss.startswith("mse") else np.zeros(6, np.int64)
    with gt.Session(graph) as session:
        session.step({"x": X, "labels": labels, "lr": 0.5})
        session.save(out)
        expected = session.evaluate({"x": X, "labels": labels}).outputs["scores"]
        state = session.values()
    np.testing.assert_allclose(outputs(out, X)["scores"], expected, rtol=1e-5, atol=1e-6)
    before, after = onnx.load(path), onnx.load(out)
    for model in (before, after):
        for attribute in model.graph.node[0].attribute:
            if attribute.name in ("coefficients", "intercepts"):
                attribute.ClearField("floats")
    assert before == after

    write_kit(graph, tmp_path / "kit")
    safetensors.save(tmp_path / "state.safetensors", state)
    merge_kit(tmp_path / "kit", tmp_path / "state.safetensors", merged)
    assert merged.read_bytes() == out.read_bytes()


@pytest.mark.parametrize("copied", [False, True])
def test_merged_statistics_become_tensors_of_their_own(copied, tmp_path):
    ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    second = ["one", "zero", "zero", "spread" if copied else "one"]
    nodes = [
        helper.make_node("BatchNormalization", ["x", "one", "zero", "zero", "one"], ["a"], "first"),
        *([helper.make_node("Identity", ["one"], ["spread"])] if copied else []),
        helper.make_node("BatchNormalization", ["a", *second], ["y"], "second"),
    ]
    graph = helper.make_graph(
        nodes, "g", [value("x", ["n", 3, 4])], [value("y", ["n", 3, 4])],
        [numpy_helper.from_array(ones, "one"), numpy_helper.from_array(zeros, "zero")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    path.write_bytes(model.SerializeToString())
    x = RNG.standard_normal((8, 3, 4)).astype(np.float32)
    graph = gt.grad(gt.load(path), loss="mse:y", optimizer="sgd", train_mode=True)
    with gt.Session(graph) as session:
        batch = {"x": x, "labels": 0 * x}
        session.step({**batch, "lr": 0.1})
        session.save(out)
        expected = session.evaluate(batch).outputs["y"]
    np.testing.assert_allclose(outputs(out, x)["y"], expected, rtol=1e-5, atol=1e-6)
    assert [n.op_type for n in onnx.load(out).graph.node] == ["BatchNormalization"] * 2

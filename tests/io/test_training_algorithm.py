"""Models that hold their own training algorithm, as the graph of one step."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

import gradtool as gt
from gradtool import api
from gradtool.errors import ModelError
from gradtool.exec import verify
from gradtool.io.training_algorithm import initial_model

HEADER = '<ir_version: 10, opset_import: ["" : 20, "ai.onnx.preview.training" : 1]>\n'
W = np.random.default_rng(0).standard_normal((4, 1)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)
T = np.random.default_rng(2).standard_normal((8, 1)).astype(np.float32)


def algorithm(update: str) -> onnx.GraphProto:
    text = f"""algorithm (float[8, 4] X, float[8, 1] T, float[4, 1] w) => (loss, new_w, new_v, next)
    {{
        d = Sub (y, target)
        dd = Mul (d, d)
        loss = ReduceMean <keepdims = 0> (dd)
        dw = ai.onnx.preview.training.Gradient <xs = ["w"], zs = ["x", "target"], y = "loss">
           (w, x, target)
        {update}
        one = Constant <value_int = 1> ()
        next = Add (step, one)
    }}"""
    graph = parser.parse_graph(text)
    del graph.input[:]
    graph.input.append(helper.make_tensor_value_info("target", onnx.TensorProto.FLOAT, [8, 1]))
    graph.initializer.extend([
        numpy_helper.from_array(np.zeros((4, 1), np.float32), "v"),
        numpy_helper.from_array(np.float32(0.1), "rate"),
        numpy_helper.from_array(np.int64(0), "step"),
    ])  # fmt: skip
    return graph


MOMENTUM = """new_w, new_v = ai.onnx.preview.training.Momentum
   <alpha = 0.9, beta = 1.0, mode = "standard", norm_coefficient = 0.0> (rate, step, w, dw, v)"""


def trained(update: str = MOMENTUM) -> onnx.ModelProto:
    model = parser.parse_model(
        HEADER + "g (float[8, 4] x, float[4, 1] w) => (float[8, 1] y) { y = MatMul (x, w) }"
    )
    del model.graph.input[1]
    model.graph.initializer.append(numpy_helper.from_array(W, "w"))
    info = model.training_info.add()
    info.algorithm.CopyFrom(algorithm(update))
    for key, value in (("w", "new_w"), ("v", "new_v"), ("step", "next")):
        info.update_binding.add(key=key, value=value)
    return model


def save(model: onnx.ModelProto, path):
    path.write_bytes(model.SerializeToString())
    return path


def test_a_step_computes_the_new_values(tmp_path):
    model = gt.load(save(trained(), tmp_path / "m.onnx"))
    found = gt.run(model, {"x": X, "target": T})
    gradient = 2 / 8 * X.T @ (X @ W - T)

    np.testing.assert_allclose(found.gradients["w"], gradient, rtol=1e-5)
    np.testing.assert_allclose(found.outputs["new_v"], gradient, rtol=1e-5)
    np.testing.assert_allclose(found.outputs["new_w"], W - 0.1 * gradient, rtol=1e-5)
    assert found.outputs["next"] == 1


def test_metadata_says_which_output_is_the_next_value_of_an_initializer(tmp_path):
    model = gt.load(save(trained(), tmp_path / "m.onnx"))

    assert json.loads(model.metadata_props["gradtool.state"]) == {
        "w": "new_w", "v": "new_v", "step": "next",
    }  # fmt: skip
    assert api.is_training_graph(model)


def test_two_algorithms_are_refused(tmp_path):
    model = trained()
    model.training_info.add().CopyFrom(model.training_info[0])

    with pytest.raises(ModelError, match="has 2 training algorithms"):
        gt.load(save(model, tmp_path / "m.onnx"))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("nothing", "new_w", "updates 'nothing', which is no initializer"),
        ("rate", "nothing", "binds 'nothing', which is no output"),
        ("w", "new_w", "updates 'w' twice"),
    ],
)
def test_a_binding_that_is_wrong(tmp_path, key, value, reason):
    model = trained()
    model.training_info[0].update_binding.add(key=key, value=value)

    with pytest.raises(ModelError, match=reason):
        gt.load(save(model, tmp_path / "m.onnx"))


def test_an_algorithm_whose_names_clash_with_the_graph(tmp_path):
    model = trained()
    model.training_info[0].algorithm.node[0].output[0] = "y"

    with pytest.raises(ModelError, match="has the name of another value"):
        gt.load(save(model, tmp_path / "m.onnx"))


def test_first_values(tmp_path):
    model = trained()
    info = model.training_info[0]
    info.initialization.CopyFrom(
        parser.parse_graph(
            "i () => (float[4, 1] ones) { ones = Constant <value = float[4, 1] {1, 1, 1, 1}> () }"
        )
    )
    info.initialization_binding.add(key="w", value="ones")
    path = save(model, tmp_path / "m.onnx")

    assert initial_model(trained()) is None
    np.testing.assert_array_equal(api.initial_values(path)["w"], np.ones((4, 1)))


@pytest.mark.parametrize("count", [0, 4])
@pytest.mark.parametrize(
    "update",
    [
        MOMENTUM,
        MOMENTUM.replace("standard", "nesterov").replace("beta = 1.0", "beta = 0.7"),
        """new_w, new_v = ai.onnx.preview.training.Adagrad
           <decay_factor = 0.1, norm_coefficient = 0.01> (rate, step, w, dw, v)""",
        """new_w, new_v, new_h = ai.onnx.preview.training.Adam
           <norm_coefficient = 0.1, norm_coefficient_post = 0.2> (rate, step, w, dw, v, v)""",
    ],
    ids=["momentum", "nesterov", "adagrad", "adam"],
)
def test_a_written_step_runs_in_stock_onnxruntime(tmp_path, update, count):
    ort = pytest.importorskip("onnxruntime")
    proto = trained(update)
    step = next(t for t in proto.training_info[0].algorithm.initializer if t.name == "step")
    step.CopyFrom(numpy_helper.from_array(np.int64(count), "step"))
    model = gt.load(save(proto, tmp_path / "m.onnx"))
    gt.save(model, tmp_path / "step.onnx")
    session = ort.InferenceSession(tmp_path / "step.onnx", providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    theirs = dict(zip(names, session.run(names, {"x": X, "target": T}), strict=True))
    ours = gt.run(model, {"x": X, "target": T}).outputs

    for name in ("loss", "new_w", "new_v"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-4, atol=1e-6)


def test_a_step_can_be_differentiated(tmp_path):
    text = """g (float[3] x, float[3] g, float[3] v, float[3] h, float r) => (float[3] y) {
        t = Constant <value_int = 2> ()
        gg = Mul (g, g)
        y, v2, h2 = ai.onnx.preview.training.Adam (r, t, x, gg, v, h)
    }"""
    model = gt.load(save(parser.parse_model(HEADER + text), tmp_path / "m.onnx"))
    training = gt.grad(model, loss="sum", wrt=["x", "g", "r"])
    feeds = {n: np.array([0.3, 0.5, 0.7], np.float32) for n in "xgvh"} | {"r": np.float32(0.1)}
    result = gt.run(training, {n: np.asarray(a) for n, a in feeds.items()})
    verify.finite_differences(training.model, feeds, result)

    np.testing.assert_array_equal(result.gradients["x"], np.ones(3))

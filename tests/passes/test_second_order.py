"""The gradient of a training graph: names, metadata, leaves and numbers."""

from __future__ import annotations

import json

import numpy as np
import onnx_ir as ir
import pytest
from conftest import build

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.graph.names import Names

NETWORK = """g (float[3, 4] x) => (float[3, 2] y) {
    h = MatMul (x, w)
    t = Tanh (h)
    s = Mul (t, k)
    y = Softmax (s)
}"""


def network(tmp_path):
    rng = np.random.default_rng(5)
    proto = build(
        NETWORK,
        w=rng.standard_normal((4, 2)).astype(np.float32),
        k=rng.standard_normal(2).astype(np.float32),
    )
    path = tmp_path / "network.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture
def first(tmp_path):
    return gt.grad(gt.load(network(tmp_path)), loss="mse:y", wrt=["w", "k", "x"])


@pytest.fixture
def inputs():
    rng = np.random.default_rng(6)
    return {
        "x": rng.standard_normal((3, 4)).astype(np.float32),
        "labels": rng.standard_normal((3, 2)).astype(np.float32),
    }


def test_it_needs_to_be_told_what_to_differentiate(first):
    with pytest.raises(UsageError, match=r"already holds gradients .*--loss sum:w_grad"):
        gt.grad(first)


def test_earlier_gradients_stay_outputs_and_are_listed(first):
    second = gt.grad(first, loss="sum:w_grad")

    outputs = [v.name for v in second.model.graph.outputs]
    lower = json.loads(second.model.metadata_props["gradtool.lower"])
    assert {"loss", "w_grad", "k_grad", "x_grad"} < set(outputs)
    assert lower == [{"loss": "loss", "gradients": dict(first.gradients)}]
    assert second.loss == "loss_1"
    assert second.gradients == {"w": "w_grad_1", "k": "k_grad_1"}


def test_names_stay_unique_up_to_the_third_order(first):
    third = gt.grad(gt.grad(first, loss="sum:w_grad"), loss="sum:k_grad_1")

    assert third.gradients == {"w": "w_grad_2", "k": "k_grad_2"}
    values = [v.name for n in third.model.graph for v in n.outputs if v.name]
    values += [v.name for v in third.model.graph.inputs]
    nodes = [n.name for n in third.model.graph]
    assert len(values) == len(set(values))
    assert len(nodes) == len(set(nodes))
    assert set(values) <= Names.of(third.model)._taken
    assert len(json.loads(third.model.metadata_props["gradtool.lower"])) == 2


def test_the_earlier_gradient_counts_as_forward(first):
    second = gt.grad(first, loss="sum:w_grad")

    stages = [n.metadata_props["gradtool.stage"] for n in second.model.graph]
    assert stages == sorted(stages, reverse=True)  # forward, then backward
    nodes = list(second.model.graph)
    forward = {n.name for n in nodes[: stages.index("backward")]}
    assert {n.metadata_props.get("gradtool.source", "") for n in nodes} <= {*forward, ""}


def test_constants_of_the_earlier_gradient_are_no_parameters(tmp_path):
    """`loss` has shape [1]: the ones that start its gradient are an initializer with an axis."""
    rng = np.random.default_rng(3)
    proto = build(
        "g (float[3] x) => (float[1] y) { a = Mul (x, w) b = Mul (a, a) y = ReduceSum (b) }",
        w=rng.standard_normal(3).astype(np.float32),
    )
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    once = gt.grad(gt.load(tmp_path / "m.onnx"), loss="y", wrt=["x"])

    assert dict(gt.grad(once, loss="sum:x_grad").gradients) == {"w": "w_grad"}


def test_a_written_gradient_graph_is_differentiated_like_the_one_in_memory(first, inputs, tmp_path):
    gt.save(first, tmp_path / "first.onnx")
    again = gt.load(tmp_path / "first.onnx")

    mine = gt.run(gt.grad(first, loss="sum:w_grad", wrt=["w", "x"]), inputs)
    read = gt.run(gt.grad(again, loss="sum:w_grad", wrt=["w", "x"]), inputs)
    for name, value in mine.gradients.items():
        np.testing.assert_array_equal(read.gradients[name], value)


def test_it_agrees_with_finite_differences(first, inputs):
    from gradtool.passes.widen import widen

    second = gt.grad(first, loss="sum:w_grad", wrt=["w", "x"])
    model = widen(second.model)
    wide = {k: v.astype(np.float64) for k, v in inputs.items()}
    found = gt.run(model, wide)
    direction = np.random.default_rng(8).uniform(-1, 1, (3, 4))

    def loss(t):
        return float(gt.run(model, wide | {"x": wide["x"] + t * direction}).loss)

    h = 1e-3
    slope = (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h)
    assert np.vdot(found.gradients["x"], direction) == pytest.approx(slope, rel=1e-9)


def test_the_written_second_order_runs_in_stock_onnxruntime(first, inputs):
    pytest.importorskip("onnxruntime")
    second = gt.grad(first, loss="sum:w_grad", wrt=["w", "k", "x"])

    ours, theirs = gt.run(second, inputs), gt.run(second, inputs, engine="ort")
    for name, value in theirs.gradients.items():
        np.testing.assert_allclose(ours.gradients[name], value, rtol=1e-4, atol=1e-5)


def test_a_hessian_vector_product_from_head_gradients(first, inputs):
    """Heads of all outputs but one are zero: what remains is `∂⟨v, w_grad⟩`."""
    second = gt.grad(first, head_grads=True, wrt=["w"])
    fed = dict(inputs)
    for value in second.model.graph.inputs:
        fed.setdefault(value.name, np.zeros(value.shape.numpy(), np.float32))
    fed["w_grad_grad"] = np.ones((4, 2), np.float32)

    named = gt.run(gt.grad(first, loss="sum:w_grad", wrt=["w"]), inputs)
    np.testing.assert_allclose(
        gt.run(second, fed).gradients["w"], named.gradients["w"], rtol=1e-5, atol=1e-6
    )


def test_the_command_line_differentiates_a_written_gradient(run, tmp_path):
    network(tmp_path)
    assert run("grad", "network.onnx", "--loss", "mse:y").code == 0
    made = run("grad", "network.grad.onnx", "--loss", "sum:w_grad", "-o", "second.onnx")

    assert made.code == 0
    assert "parameters: 2 of 2" in made.out
    metadata = ir.load(tmp_path / "second.onnx").metadata_props
    assert json.loads(metadata["gradtool.gradients"]) == {"w": "w_grad_1", "k": "k_grad_1"}
    shown = run("run", "network.grad.onnx", "--loss", "sum:w_grad", "--inputs", "random")
    assert shown.code == 0
    assert "parameters: 2 of 2" in shown.err

from __future__ import annotations

import numpy as np
import onnx
import pytest

import gradtool as gt


def saved(tmp_path, node, inputs, output):
    info = onnx.helper.make_tensor_value_info
    nodes = [node, onnx.helper.make_node("ReduceSum", ["y"], ["loss"], keepdims=0)]
    graph = onnx.helper.make_graph(
        nodes, "g", [info(n, 1, s) for n, s in inputs.items()],
        [info("loss", 1, []), info("y", 1, output)],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 28)])
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    return path


def test_an_operator_without_a_kernel_is_replaced_by_its_definition_and_differentiated(tmp_path):
    node = onnx.helper.make_node("SwiGLU", ["a", "b"], ["y"], name="gate")
    path = saved(tmp_path, node, {"a": [3, 4], "b": [3, 4]}, [3, 4])
    model = gt.load(path)

    assert {n.op_type for n in model.graph} == {"Swish", "Mul", "ReduceSum"}
    a, b = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    result = gt.run(gt.grad(model, loss="loss", input_grad=["a", "b"]), {"a": a, "b": b})
    gate = 1 / (1 + np.exp(-a))
    np.testing.assert_allclose(result.gradients["b"], a * gate, rtol=1e-5)
    np.testing.assert_allclose(
        result.gradients["a"], b * gate * (1 + a * (1 - gate)), rtol=1e-4, atol=1e-6
    )


@pytest.mark.extra
def test_a_definition_may_depend_on_types_and_on_what_is_absent(tmp_path):
    torch = pytest.importorskip("torch")
    node = onnx.helper.make_node(
        "CausalConvWithState", ["x", "w"], ["y", "state"], activation="silu", name="conv"
    )
    path = saved(tmp_path, node, {"x": [2, 3, 7], "w": [3, 1, 4]}, [2, 3, 7])
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 7)).astype(np.float32)
    w = rng.normal(size=(3, 1, 4)).astype(np.float32)
    training = gt.grad(gt.load(path), loss="loss", input_grad=["x", "w"])
    result = gt.run(training, {"x": x, "w": w})

    tx, tw = torch.tensor(x, requires_grad=True), torch.tensor(w, requires_grad=True)
    padded = torch.nn.functional.pad(tx, (3, 0))
    torch.nn.functional.silu(torch.nn.functional.conv1d(padded, tw, groups=3)).sum().backward()
    np.testing.assert_allclose(result.gradients["x"], tx.grad.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.gradients["w"], tw.grad.numpy(), rtol=1e-4, atol=1e-5)

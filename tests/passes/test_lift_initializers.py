"""What bodies hold themselves: sizes, weights and constants that their gradient reads as well."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import gradtool as gt
from gradtool.exec import verify

X = np.linspace(-1, 1, 40, dtype=np.float32).reshape(5, 4, 2)


def held(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def untyped(*names):
    return [onnx.ValueInfoProto(name=name) for name in names]


@pytest.fixture
def recurrent(tmp_path):
    """A recurrence as a Loop: a gate, a candidate, rows cut from the state."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Gather", ["x", "i"], ["xt"], axis=0),
        helper.make_node("MatMul", ["xt", "inward"], ["a"]),
        helper.make_node("MatMul", ["h", "recurrent"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["s"]),
        helper.make_node("Split", ["s", "parts"], ["z0", "c0"], axis=1),
        helper.make_node("Sigmoid", ["z0"], ["z"]),
        helper.make_node("Tanh", ["c0"], ["c"]),
        helper.make_node("Sub", ["one", "z"], ["rest"]),
        helper.make_node("Mul", ["z", "h"], ["old"]),
        helper.make_node("Mul", ["rest", "c"], ["new"]),
        helper.make_node("Add", ["old", "new"], ["h2"]),
        helper.make_node("Slice", ["h2", "starts", "ends", "axes"], ["row"]),
        helper.make_node("Identity", ["go"], ["on"]),
    ]
    body = helper.make_graph(
        nodes, "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            *untyped("h"),
        ],
        untyped("on", "h2", "row"),
        [
            held("recurrent", rng.standard_normal((3, 6)).astype(np.float32)),
            held("parts", [3, 3]), held("one", np.float32(1)),
            held("starts", [0]), held("ends", [2]), held("axes", [1]),
        ],
    )  # fmt: skip
    graph = helper.make_graph(
        [
            helper.make_node("Loop", ["n", "", "h0"], ["last", "rows"], body=body),
            helper.make_node("ReduceMean", ["rows"], ["loss"], keepdims=0),
        ],
        "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])],
        [
            held("inward", rng.standard_normal((2, 6)).astype(np.float32)),
            held("h0", np.zeros((4, 3), np.float32)), held("n", 5),
        ],
    )  # fmt: skip
    proto = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_the_gradient_of_a_loop_reads_what_its_body_holds(recurrent, tmp_path):
    training = gt.grad(gt.load(recurrent))
    gt.save(training, tmp_path / "out.onnx")
    onnx.checker.check_model(tmp_path / "out.onnx", full_check=True)
    written = gt.load(tmp_path / "out.onnx")
    result = gt.run(written, {"x": X})

    assert "agree with finite differences" in verify.finite_differences(written, {"x": X}, result)


def test_a_weight_of_a_body_is_trained_like_any_other(recurrent):
    assert set(gt.grad(gt.load(recurrent)).gradients) == {"inward", "h0", "recurrent"}


def test_a_branch_may_return_what_it_holds(tmp_path):
    branches = {}
    for name in ("then_branch", "else_branch"):
        out = helper.make_tensor_value_info(f"{name}_w", TensorProto.FLOAT, [2])
        weight = held(f"{name}_w", np.ones(2, np.float32))
        branches[name] = helper.make_graph([], name, [], [out], [weight])
    nodes = [
        helper.make_node("If", ["c"], ["w"], **branches),
        helper.make_node("Mul", ["w", "x"], ["y"]),
        helper.make_node("ReduceSum", ["y"], ["loss"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])],
    )  # fmt: skip
    proto = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])
    onnx.save(proto, tmp_path / "model.onnx")
    training = gt.grad(gt.load(tmp_path / "model.onnx"))
    gt.save(training, tmp_path / "out.onnx")
    feeds = {"x": np.asarray([3, 4], np.float32), "c": np.asarray(False)}
    found = gt.run(gt.load(tmp_path / "out.onnx"), feeds).gradients

    assert found["then_branch_w"].tolist() == [0, 0]
    assert found["else_branch_w"].tolist() == [3, 4]

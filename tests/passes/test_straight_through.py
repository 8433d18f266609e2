from __future__ import annotations

import numpy as np
import onnx
import pytest
from graphs import gradients, parse, stock

import gradtool as gt
from gradtool.errors import NotDifferentiable


def model_file(tmp_path, scale, zero, *, axis=1, pair=True):
    nodes = [
        onnx.helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="quantize", axis=axis),
        onnx.helper.make_node(
            "DequantizeLinear", ["q", "s" if pair else "t", "z"], ["y"], name="restore", axis=axis
        ),
        onnx.helper.make_node("Mul", ["y", "w"], ["m"], name="weigh"),
        onnx.helper.make_node("ReduceSum", ["m"], ["loss"], name="sum", keepdims=0),
    ]
    weights = np.arange(1, 13, dtype=np.float32).reshape(3, 4) / 4
    given = {"s": scale, "z": zero, "w": weights} | ({} if pair else {"t": scale * 2})
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes, "g", [info("x", 1, [3, 4])], [info("loss", 1, [])],
        [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in given.items()],
    )  # fmt: skip
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])
    proto.ir_version = 10
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    return path, weights


X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4) + 0.013


@pytest.mark.extra
@pytest.mark.parametrize("by_channel", [False, True])
def test_gradients_are_those_of_torch(tmp_path, by_channel):
    torch = pytest.importorskip("torch")
    scale = np.float32([0.01, 0.004, 0.02, 0.3]) if by_channel else np.float32([0.009])
    zero = np.int8([0, 3, -5, 100]) if by_channel else np.int8([7])
    path, weights = model_file(tmp_path, scale, zero)
    training = gt.grad(gt.load(path), loss="loss", wrt=["s"], input_grad=["x"], ste=True)
    result = gt.run(training, {"x": X})

    x, s = torch.tensor(X, requires_grad=True), torch.tensor(scale, requires_grad=True)
    z = torch.tensor(zero.astype(np.float32))
    if by_channel:
        y = torch._fake_quantize_learnable_per_channel_affine(x, s, z, 1, -128, 127, 1.0)
    else:
        y = torch._fake_quantize_learnable_per_tensor_affine(x, s, z, -128, 127, 1.0)
    loss = (y * torch.tensor(weights)).sum()
    loss.backward()
    assert result.loss == pytest.approx(loss.item(), rel=1e-5)
    np.testing.assert_array_equal(result.gradients["x"], x.grad.numpy())
    np.testing.assert_allclose(result.gradients["s"], s.grad.numpy(), rtol=2e-4)


def test_the_written_graph_holds_the_pair_again_and_runs_in_onnxruntime(tmp_path):
    pytest.importorskip("onnxruntime")
    path, _ = model_file(tmp_path, np.float32([0.009]), np.int8([7]))
    training = gt.grad(gt.load(path), loss="loss", input_grad=["x"], ste=True)
    written, _ = gt.save(training, tmp_path / "training.onnx")
    operators = [n.op_type for n in onnx.load(written).graph.node]
    assert "QuantizeLinear" in operators
    assert "DequantizeLinear" in operators
    ours, theirs = gt.run(training, {"x": X}), gt.run(training, {"x": X}, engine="ort")
    np.testing.assert_allclose(ours.gradients["x"], theirs.gradients["x"])


def test_what_is_quantised_on_the_way_needs_no_flag(tmp_path):
    path, _ = model_file(tmp_path, np.float32([0.009]), np.int8([7]))
    without, asked = (
        gt.run(gt.grad(gt.load(path), loss="loss", input_grad=["x"], ste=ste), {"x": X})
        for ste in (False, True)
    )
    np.testing.assert_array_equal(without.gradients["x"], asked.gradients["x"])


def test_a_parameter_that_is_rounded_needs_the_flag(tmp_path):
    path = tmp_path / "model.onnx"
    text = """<ir_version: 10, opset_import: ["":21]>
    g (float[2,3] x) => (float[2,4] y) <float[3,4] w, float s = {0.5}, int8 z = {0}> {
        [round] q = QuantizeLinear (w, s, z)
        [restore] r = DequantizeLinear (q, s, z)
        [multiply] y = MatMul (x, r)
    }"""
    model = onnx.parser.parse_model(text)
    del model.graph.initializer[:]
    given = {"w": X.T.reshape(3, 4), "s": np.float32(0.5), "z": np.int8(0)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, k) for k, v in given.items())
    onnx.save(model, path)

    with pytest.raises(NotDifferentiable, match=r"'round'.*--ste"):
        gt.grad(gt.load(path), loss="sum:y")
    assert list(gt.grad(gt.load(path), loss="sum:y", ste=True).gradients) == ["w"]


def test_another_scale_on_the_way_back_is_refused(tmp_path):
    path, _ = model_file(tmp_path, np.float32([0.009]), np.int8([7]), pair=False)
    with pytest.raises(NotDifferentiable, match="same scale"):
        gt.grad(gt.load(path), loss="loss", input_grad=["x"], ste=True)


def test_a_scale_that_is_measured_is_a_constant(tmp_path):
    text = """<ir_version: 10, opset_import: ["":21]>
    g (float[3,4] x, float[3,4] w) => (float loss) {
        [measure] q, s, z = DynamicQuantizeLinear (x)
        [restore] y = DequantizeLinear (q, s, z)
        [weigh] m = Mul (y, w)
        [sum] loss = ReduceSum <keepdims = 0> (m)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    model = gt.load(tmp_path / "model.onnx")
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)

    training = gt.grad(model, loss="loss", wrt=["x"])
    result = gt.run(training, {"x": X, "w": weights})

    np.testing.assert_array_equal(result.gradients["x"], weights)
    assert abs(result.loss - float((X * weights).sum())) < 0.02 * weights.sum()


def test_a_measured_scale_runs_in_onnxruntime(tmp_path):
    pytest.importorskip("onnxruntime")
    text = """<ir_version: 10, opset_import: ["":21]> g (float[3,4] x) => (float loss) {
        [measure] q, s, z = DynamicQuantizeLinear (x)
        [restore] y = DequantizeLinear (q, s, z)
        [sum] loss = ReduceSumSquare <keepdims = 0> (y)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    training = gt.grad(gt.load(tmp_path / "model.onnx"), wrt=["x"], ste=True)

    ours, theirs = (gt.run(training, {"x": X}, engine=e) for e in ("arena", "ort"))

    np.testing.assert_allclose(ours.gradients["x"], theirs.gradients["x"], rtol=1e-6)


def test_a_bias_that_is_added_as_an_integer_lets_gradients_through():
    """As older quantisers of onnxruntime write a Conv: its bias in steps of both scales."""
    model = parse(
        """net (float[1, 2, 4, 4] x) => (y)
        <float[2] b = {0.4, -1.3}, float s = {0.1}, int8[2, 2, 1, 1] w = {1, -2, 3, 4},
         int8 z = {0}, int64[4] shape = {1, 2, 1, 1}> {
            q, xs, xz = DynamicQuantizeLinear (x)
            p = ConvInteger (q, w, xz, z)
            step = Mul (xs, s)
            many = Div (b, step)
            whole = Floor (many)
            n = Cast <to = 6> (whole)
            r = Reshape (n, shape)
            t = Add (p, r)
            f = Cast <to = 1> (t)
            y = Mul (f, step)
        }"""
    )
    training = gt.grad(model, loss="sum:y", wrt=["b"], input_grad=["x"])
    x = np.random.default_rng(0).normal(size=(1, 2, 4, 4)).astype(np.float32)
    found = gradients(training, x=x)
    theirs = stock(training.model, x=x)

    np.testing.assert_allclose(found["b"], [16, 16], rtol=1e-6)
    np.testing.assert_allclose(found["x"][0, :, 0, 0], [0.4, 0.2], rtol=1e-5)
    np.testing.assert_allclose(theirs[training.gradients["b"]], found["b"], rtol=1e-6)
    np.testing.assert_array_equal(gt.run(training, {"x": x}).outputs["y"], theirs["y"])


def test_rows_of_a_quantised_table_that_a_shape_chooses_have_no_gradient():
    tensor = onnx.numpy_helper.from_array
    make = onnx.helper.make_node
    nodes = [
        make("Shape", ["h"], ["s"]), make("Range", ["zero", "n", "one"], ["places"]),
        make("Squeeze", ["last"], ["n"]), make("Gather", ["s", "one_"], ["last"]),
        make("Gather", ["table", "places"], ["rows"]),
        make("Transpose", ["rows"], ["turned"], perm=[1, 0]),
        make("DequantizeLinear", ["turned", "scale", "offset"], ["bias"]),
        make("MatMul", ["x", "w"], ["h"]), make("Add", ["h", "bias"], ["y"]),
    ]  # fmt: skip
    order = [7, 0, 3, 2, 1, 4, 5, 6, 8]
    rng = np.random.default_rng(0)
    held = {
        "zero": np.array(0), "one": np.array(1), "one_": np.array([1]),
        "table": rng.integers(0, 255, (6, 3)).astype(np.uint8), "scale": np.float32(0.01),
        "offset": np.uint8(120), "w": rng.standard_normal((4, 5)).astype(np.float32),
    }  # fmt: skip
    x, y = (onnx.helper.make_tensor_value_info(n, 1, [3, s]) for n, s in (("x", 4), ("y", 5)))
    graph = onnx.helper.make_graph(
        [nodes[n] for n in order],
        "g",
        [x],
        [y],
        [tensor(np.asarray(a), n) for n, a in held.items()],
    )
    made = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9
    )
    training = gt.grad(gt.load(made), loss="sum:y")

    assert list(training.gradients) == ["w"]

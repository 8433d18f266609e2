"""Quantised files: gradients straight through, operators of com.microsoft, what is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from conftest import sampled
from onnx import TensorProto, helper, numpy_helper
from quantised import Quantised, draw, examine

import gradtool as gt
from gradtool.errors import NotDifferentiable

CASES = [
    Quantised("dynamic", "attention", True, False, "QUInt8", "QInt8"),
    Quantised("QOperator", "vision", True, False, "QUInt8", "QInt8"),
    Quantised("QDQ", "vision", False, True, "QInt8", "QInt8"),
    Quantised("dynamic", "recurrent", True, False, "QUInt8", "QInt8"),
    Quantised("dynamic", "recurrent", False, False, "QUInt8", "QUInt8"),
]


@pytest.mark.sample(1, 2)
@pytest.mark.extra
@pytest.mark.parametrize("case", [*CASES, *(draw(np.random.default_rng(s)) for s in range(2))])
def test_gradients_of_quantised_files_are_those_of_rounding_let_through(case, tmp_path):
    pytest.importorskip("torch")

    assert examine(case, tmp_path) == []


S, Z, T, U = np.float32(0.05), np.uint8(120), np.float32(0.07), np.uint8(99)
A = np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2) * 9
B = A[::-1].copy()
M = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
CALLS = {
    "QLinearAdd": ([A, S, Z, B, T, U, T, Z], {}),
    "QLinearMul": ([A, S, Z, B, T, U, T, Z], {}),
    "QLinearSigmoid": ([A, S, Z, np.float32(1 / 256), np.uint8(0)], {}),
    "QLinearLeakyRelu": ([A, S, Z, T, U], {"alpha": 0.3}),
    "QLinearSoftmax": ([A, S, Z, np.float32(1 / 256), np.uint8(0)], {"axis": 1, "opset": 13}),
    "QLinearAveragePool": ([A, S, Z, T, U], {"kernel_shape": [2, 2], "pads": [0, 0, 1, 1]}),
    "QLinearGlobalAveragePool": ([A, S, Z, T, U], {}),
    "QLinearConcat": ([T, U, A, S, Z, B, T, Z], {"axis": 1}),
    "QLinearWhere": ([A > 99, A, S, Z, B, T, U, T, Z], {}),
    "QGemm": ([M, S, Z, M.T.copy(), T, U, np.arange(3, dtype=np.int32) * 50, np.float32(3), Z], {}),
}


@pytest.mark.parametrize("op", CALLS)
def test_an_operator_on_integers_is_onnxruntime_s_own_to_a_step(op):
    ort = pytest.importorskip("onnxruntime")
    inputs, given = CALLS[op]
    names = [f"i{n}" for n in range(len(inputs))]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], "node", domain="com.microsoft", **given)], "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in zip(names, inputs, strict=True)],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    theirs = ort.InferenceSession(model.SerializeToString()).run(None, {})[0]

    ours = gt.run(gt.load(model), {}).outputs["y"]

    assert ours.shape == theirs.shape
    assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 1


@pytest.mark.sample(2)
@pytest.mark.parametrize("op", ["DynamicQuantizeMatMul", "MatMulIntegerToFloat"])
def test_a_product_of_integers_passes_gradients_by_what_its_weight_stands_for(op):
    dynamic = op == "DynamicQuantizeMatMul"
    rows = "q, s, z = DynamicQuantizeLinear (x)" if not dynamic else ""
    read = "x, w, t, u, b" if dynamic else "q, w, s, t, z, u, b"
    model = parsed(
        f"""<ir_version: 9, opset_import: ["":18, "com.microsoft":1]>
        g (float[2,3] x) => (float[2,4] y) {{ {rows} y = com.microsoft.{op} ({read}) }}""",
        w=M, t=np.float32([0.1, 0.2, 0.3, 0.4]) if dynamic else T,
        u=np.uint8([0, 1, 2, 3]) if dynamic else U, b=np.ones(4, np.float32),
    )  # fmt: skip
    x = np.linspace(-1, 2, 6, dtype=np.float32).reshape(2, 3)
    graph = gt.grad(model, loss="sum:y", input_grad=["x"])
    scales, zeros = (np.float32([0.1, 0.2, 0.3, 0.4]), np.arange(4)) if dynamic else (T, U)
    weight = (M.astype(float) - zeros) * scales

    ours, theirs = (gt.run(graph, {"x": x}, engine=e) for e in ("arena", "ort"))

    assert sorted(graph.gradients) == ["b", "x"]
    for found in (ours, theirs):
        np.testing.assert_allclose(found.outputs["y"], x @ weight + 1, atol=0.02 * weight.max())
        np.testing.assert_allclose(found.gradients["x"], [weight.sum(1)] * 2, rtol=1e-5)


@pytest.mark.sample(2)
@pytest.mark.parametrize("scales", [(2,), (2, 12)])
@pytest.mark.parametrize("kind", sampled([np.int8, np.uint8]))
def test_an_lstm_of_integers_has_the_gradients_of_what_they_stand_for(scales, kind):
    rng = np.random.default_rng(len(scales))
    held, real = {"b": rng.normal(size=(2, 24)).astype(np.float32)}, {}
    for name, rows in (("w", 4), ("r", 3)):
        q = rng.integers(0, 120, (2, rows, 12)).astype(kind)
        s = rng.uniform(0.004, 0.01, scales).astype(np.float32)
        z = np.full(scales, 50, kind)
        held |= {name: q, f"{name}s": s, f"{name}z": z}
        whole = q.astype(np.float32) - z.reshape(2, 1, -1)
        real[name] = (whole * s.reshape(2, 1, -1)).transpose(0, 2, 1)
    text = """<ir_version: 9, opset_import: ["":18, "com.microsoft":1]>
        g (float[t,2,4] x) => (float[t,2,2,3] y, float[2,2,3] h) {{
        y, h = {} <hidden_size = 3, direction = "bidirectional"> (x, w, r, b{}) }}"""
    model = parsed(text.format(
        "com.microsoft.DynamicQuantizeLSTM", ", , , , , ws, wz, rs, rz"
    ), **held)  # fmt: skip
    plain = parsed(text.format("LSTM", ""), b=held["b"], **real)
    x = rng.integers(-127, 129, (5, 2, 4)).astype(np.float32) / 64  # whole steps of its range
    x.flat[:2] = -127 / 64, 2

    graph = gt.grad(model, loss="sum:y", input_grad=["x"])
    exact = gt.run(gt.grad(plain, loss="sum:y", input_grad=["x"]), {"x": x})

    assert sorted(graph.gradients) == ["b", "x"]
    assert any("2 quantised weights of integers" in line for line in graph.warnings)
    for engine in ("arena", "ort"):
        found = gt.run(graph, {"x": x}, engine=engine)
        for name in graph.gradients:
            np.testing.assert_allclose(
                found.gradients[name], exact.gradients[name], rtol=1e-4, atol=1e-5
            )


def parsed(text, **held):
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in held.items())
    return gt.load(model)


def test_integers_that_are_read_otherwise_are_refused_by_name():
    model = parsed(
        """<ir_version: 10, opset_import: ["":21]> g (float[2,3] x) => (float[2,4] y) {
        [measure] q, s, z = DynamicQuantizeLinear (x)
        [multiply] p = MatMulInteger (q, w, other)
        f = Cast <to = 1> (p)
        y = Mul (f, s)
    }""",
        w=M, other=Z,
    )  # fmt: skip

    with pytest.raises(NotDifferentiable, match="multiply"):
        gt.grad(model, loss="sum:y", input_grad=["x"])


def test_weights_of_integers_say_how_they_could_be_trained():
    model = parsed(
        """<ir_version: 10, opset_import: ["":21]> g (float[2,3] x) => (float[2,4] y) {
        r = DequantizeLinear (w, s, z)
        p = MatMul (x, r)
        y = Add (p, b)
    }""",
        w=M, s=S, z=Z, b=np.ones(4, np.float32),
    )  # fmt: skip
    graph = gt.grad(model, loss="sum:y")

    assert list(graph.gradients) == ["b"]
    assert any("AddQDQPairToWeight" in line for line in graph.warnings)

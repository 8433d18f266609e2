from __future__ import annotations

import numpy as np
import onnx
import pytest

import gradtool as gt


def model(text: str, **arrays: np.ndarray) -> onnx.ModelProto:
    made = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> g {text}')
    made.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in arrays.items())
    return made


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


CASES = {
    "product": (
        model("(float[b, k] x) => (y) { y = MatMul (x, w) }", w=ones(8, 3)),
        {"x": "[b,8]"},
    ),
    "vector": (model("(float[k] x) => (y) { y = MatMul (x, w) }", w=ones(8, 3)), {"x": "[8]"}),
    "transposed product": (
        model("(float[k, b] x) => (y) { y = Gemm <transA = 1, transB = 1> (x, w) }", w=ones(3, 8)),
        {"x": "[8,b]"},
    ),
    "a multiple": (
        model(
            "(float[b, k] x) => (y) { z = Concat <axis = 1> (x, x)  y = MatMul (z, w) }",
            w=ones(8, 3),
        ),
        {"x": "[b,4]"},
    ),
    "channels of groups": (
        model("(float[b, c, h, v] x) => (y) { y = Conv <group = 2> (x, w) }", w=ones(4, 3, 1, 1)),
        {"x": "[b,6,h,v]"},
    ),
    "channels of a transposed convolution": (
        model("(float[b, c, h, v] x) => (y) { y = ConvTranspose (x, w) }", w=ones(4, 3, 1, 1)),
        {"x": "[b,4,h,v]"},
    ),
    "a cache": (
        model(
            "(float[b, s, 8] x, float[c, p, d] past) => (y)"
            " { z = MatMul (x, w)  y = Concat <axis = 1> (past, z) }",
            w=ones(8, 4),
        ),
        {"x": "[b,s,8]", "past": "[b,p,4]"},
    ),
    "heads": (
        model(
            "(float[b, k] x) => (y) { r = Reshape (x, s)  y = ReduceSum <keepdims = 0> (r) }",
            s=np.array([0, 2, 4]),
        ),
        {"x": "[b,8]"},
    ),
    "what is left over decides nothing": (
        model("(float[b, k] x) => (y) { y = Reshape (x, s) }", s=np.array([0, 2, -1])),
        {"x": "[b,k]"},
    ),
    "states": (
        model(
            '(float[s, b, k] x, float[1, c, h] h0) => (y) { y = LSTM <hidden_size = 4>'
            ' (x, w, r, "", "", h0) }',
            w=ones(1, 16, 3), r=ones(1, 16, 4),
        ),
        {"x": "[s,b,3]", "h0": "[1,b,4]"},
    ),
    "a state that is a part of an input": (
        model(
            "(float[s, b, 3] x, float[2, 1, 4] h0) => (y)"
            ' { h = Slice (h0, zero, one, zero)  y = GRU <hidden_size = 4>'
            ' (x, w, r, "", "", h) }',
            w=ones(1, 12, 3), r=ones(1, 12, 4), zero=np.array([0]), one=np.array([1]),
        ),
        {"x": "[s,1,3]", "h0": "[2,1,4]"},
    ),
    "a state that the file holds decides nothing": (
        model(
            '(float[s, b, 3] x) => (y) { y = GRU <hidden_size = 4> (x, w, r, "", "", h) }',
            w=ones(1, 12, 3), r=ones(1, 12, 4), h=ones(1, 1, 4),
        ),
        {"x": "[s,b,3]"},
    ),
    "features": (
        model("(float[b, k] x) => (y) { y = LayerNormalization (x, w) }", w=ones(8)),
        {"x": "[b,8]"},
    ),
    "features scaled alike": (
        model("(float[b, k] x) => (y) { y = LayerNormalization (x, w) }", w=ones(1)),
        {"x": "[b,k]"},
    ),
    "an axis that is left out": (
        model("(float[b, k] x) => (y) { y = Squeeze (x, a) }", a=np.array([1])),
        {"x": "[b,1]"},
    ),
    "two axes called alike": (
        model("(float[n, n] x) => (y) { y = MatMul (x, w) }", w=ones(8, 3)),
        {"x": "[n,8]"},
    ),
    "two inputs called alike": (
        model(
            "(float[b, k] x, float[b, k] q) => (y)"
            " { z = MatMul (x, w)  u = MatMul (q, v)  y = Concat <axis = 1> (z, u) }",
            w=ones(8, 3), v=ones(5, 3),
        ),
        {"x": "[b,8]", "q": "[b,5]"},
    ),
    "axes that only together are decided": (
        model(
            "(float[n, n] x) => (y) { a = Shape (x)  s = ReduceSum <keepdims = 0> (a)"
            "  u = Unsqueeze (s, zero)  c = ConstantOfShape (u)  y = MatMul (c, w) }",
            w=ones(8, 3), zero=np.array([0]),
        ),
        {"x": "[n,n]"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_sizes_are_what_nodes_take(name):
    proto, expected = CASES[name]
    loaded = gt.load(proto)

    assert {v.name: str(v.shape) for v in loaded.graph.inputs} == expected
    lines = loaded.meta["gradtool.hints"]
    assert bool(lines) == (expected != {v.name: _shown(v) for v in proto.graph.input})


def _shown(value: onnx.ValueInfoProto) -> str:
    dims = value.type.tensor_type.shape.dim
    return f"[{','.join(dim.dim_param or str(dim.dim_value) for dim in dims)}]"


def test_unlike_sizes_that_are_called_alike_are_fed_and_differentiated():
    proto, _ = CASES["two inputs called alike"]
    x, q = np.full((2, 8), 2, np.float32), np.full((2, 5), 3, np.float32)
    found = gt.run(gt.grad(gt.load(proto), loss="sum:y"), {"x": x, "q": q})

    assert found.gradients["w"].tolist() == (x.T @ ones(2, 3)).tolist()
    assert found.gradients["v"].tolist() == (q.T @ ones(2, 3)).tolist()


def test_a_size_that_is_given_and_another_that_nodes_take_are_refused(run, tmp_path):
    onnx.save(CASES["product"][0], tmp_path / "m.onnx")
    outcome = run("grad", tmp_path / "m.onnx", "--dim", "k=9")

    assert outcome.code == 2
    assert "MatMul" in outcome.err


def test_what_was_decided_is_said_of_a_verbose_command(run, tmp_path):
    onnx.save(CASES["product"][0], tmp_path / "m.onnx")
    line = "size 'k' of inputs is 8: MatMul node that writes 'y' takes no other"

    assert line in run("-v", "grad", tmp_path / "m.onnx").err
    assert line not in run("grad", tmp_path / "m.onnx", "--force").err

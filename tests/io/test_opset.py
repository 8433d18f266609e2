import numpy as np
import onnx
import pytest

import gradtool as gt
from gradtool import io
from gradtool.errors import ModelError
from gradtool.graph.metadata import SCOPES
from gradtool.io import opset
from gradtool.passes.provenance import KIND

OLD = {
    9: "(float[2, 3] x, float[3, 4] w) => (float[2, 4] y) { h = MatMul (x, w) y = Softmax (h) }",
    11: "(float[2, 3] x) => (float[3] y) { y = ReduceSum <axes = [0], keepdims = 0> (x) }",
    12: "(float[1, 3] x) => (float[3] y) { y = Squeeze <axes = [0]> (x) }",
    13: "(float[2, 3] x) => (float[3] y) { y = ReduceMean <axes = [0], keepdims = 0> (x) }",
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("version", OLD)
def test_an_old_model_is_raised_and_computes_the_same(write, text, tmp_path, version):
    ort = pytest.importorskip("onnxruntime")
    path = write(text(f"g {OLD[version]}", opset=version, ir_version=6))
    model = io.load(path)
    raised, _ = io.save(model, tmp_path / "raised.onnx")

    assert model.graph.opset_imports[""] == 18
    assert model.meta["gradtool.raised_from"] == version
    assert model.ir_version == 8
    assert not any(not value.shape for node in model.graph for value in node.outputs)
    random = np.random.default_rng(0)
    feeds = {
        value.name: random.normal(size=value.shape.numpy()).astype(np.float32)
        for value in model.graph.inputs
    }
    before, after = (
        ort.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        for file in (path, raised)
    )
    np.testing.assert_array_equal(before, after)


def test_the_weights_do_not_pass_through_the_converter(write, weighted, monkeypatch):
    model = weighted(10_000)
    model.opset_import[0].version = 13
    seen = []
    from gradtool.io import opset

    real = opset._convert
    monkeypatch.setattr(opset, "_convert", lambda m, *v: seen.append(m.ByteSize()) or real(m, *v))
    loaded = io.load(write(model))

    assert seen[0] < 1000
    assert [value.name for value in loaded.graph.inputs] == ["x"]
    assert io.array(loaded.graph.initializers["w"].const_value)[-1] == 9999.0


def test_a_higher_opset_may_be_asked_for(write):
    model = io.load(write("g (float[2] x) => (y) { y = Relu (x) }"), opset=21)

    assert model.graph.opset_imports[""] == 21
    assert model.meta["gradtool.raised_from"] == 20


def test_a_model_above_the_minimum_keeps_its_opset(write):
    assert io.load(write("g (float[2] x) => (y) { y = Relu (x) }")).graph.opset_imports[""] == 20


@pytest.mark.parametrize("version", [21, 23])
def test_what_an_exporter_notes_of_values_and_nodes_stays(text, version):
    """PyTorch says there which tensors are parameters and which are buffers."""
    model = text(
        """g (float[2] x, bool c) => (float[2] y)
        <float[2] w = {1, 2}, float[2] b = {3, 4}>
        {
            t = Mul (x, w)
            y = If (c) <
                then_branch = g1 () => (float[2] p) { p = Add (t, b) },
                else_branch = g2 () => (float[2] q) { q = Neg (t) }
            >
        }"""
    )
    for name, what in (("w", "PARAMETER"), ("b", "BUFFER"), ("t", "made")):
        value = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2])
        onnx.helper.set_model_props(value, {KIND: what})
        model.graph.value_info.append(value)
    first, last = model.graph.node
    inner = last.attribute[0].g.node[0]
    for node, scope in ((first, "['', 'a', 'mul']"), (inner, "['', 'b', 'add']")):
        onnx.helper.set_model_props(node, {SCOPES: scope})
    raised = opset.raise_to(model, version)

    noted = {v.name: v.metadata_props[0].value for v in raised.graph.value_info if v.metadata_props}
    nodes = (raised.graph.node[0], raised.graph.node[1].attribute[0].g.node[0])
    assert noted == {"w": "PARAMETER", "b": "BUFFER", "t": "made"}
    assert [[p.value for p in node.metadata_props] for node in nodes] == [
        ["['', 'a', 'mul']"], ["['', 'b', 'add']"],
    ]  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("version", [12, 17])
def test_a_window_that_begins_behind_the_image_is_not_counted(text, tmp_path, op, version):
    """PyTorch leaves it out, as onnxruntime does; what the converter says of it is not heard."""
    ort = pytest.importorskip("onnxruntime")
    path = tmp_path / "pool.onnx"
    made = text(
        f"""g (float[1, 1, 11, 9] x) => (float[1, 1, n, m] y) {{
            p = {op} <kernel_shape = [2, 2], strides = [3, 3], pads = [1, 1, 1, 1], ceil_mode = 1>
                (x)
            y = Neg (p)
        }}""",
        opset=version,
        ir_version=8,
    )
    path.write_bytes(made.SerializeToString())
    x = np.random.default_rng(0).normal(size=(1, 1, 11, 9)).astype(np.float32)
    found = gt.run(gt.load(path), {"x": x}).outputs["y"]
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])

    np.testing.assert_allclose(found, session.run(None, {"x": x})[0], rtol=1e-6)


def test_an_opset_that_onnx_does_not_know_is_refused(write):
    newest = onnx.defs.onnx_opset_version()
    with pytest.raises(ModelError, match=f"is newer than {newest}"):
        io.load(write("g (float[2] x) => (y) { y = Relu (x) }"), opset=newest + 1)


def test_a_failure_of_the_converter_is_one_line(write, text):
    body = "g (float[2, 3] x) => (y) { y = Dropout <is_test = 0> (x) }"
    with pytest.raises(ModelError, match=r"opset 6 cannot be raised to 18: .*; export") as info:
        io.load(write(text(body, opset=6, ir_version=6)))
    assert "\n" not in str(info.value)


def test_an_old_model_with_local_functions_is_raised(tmp_path):
    path = tmp_path / "model.onnxtxt"
    path.write_text(
        '<ir_version: 8, opset_import: ["" : 13, "l" : 1]>'
        "g (float[2, 3] x) => (float[3] y) { y = l.F (x) }"
        '<domain: "l", opset_import: ["" : 13]>'
        "F (a) => (b) { b = ReduceMean <axes = [0], keepdims = 0> (a) }"
    )
    model = io.load(path)

    assert model.graph.opset_imports[""] == 18
    assert "axes" not in next(n for n in model.graph if n.op_type == "ReduceMean").attributes

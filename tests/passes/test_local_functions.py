"""Composites as local functions: other runtimes run them, and loading folds them back."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir
import pytest
from graphs import floats, parse

import gradtool as gt
from gradtool.errors import ModelError
from gradtool.graph.composites import DOMAIN
from gradtool.graph.metadata import CALL, CALLEE
from gradtool.passes.local_functions import localise

GRAPHS = {
    "layer norm": (
        """g (float[N, 4] x, float[4] w, float[4] b) => (y) {
            [norm] h = LayerNormalization (x, w, b) [soft] s = Softmax (h) [tanh] y = Tanh (s)
        }""",
        "w b",
    ),
    "convolution": (
        """g (float[N, 2, 6, 5] x, float[3, 2, 3, 3] w, float[3] b) => (y) {
            [conv] h = Conv <pads = [1, 1, 1, 1], strides = [2, 1]> (x, w, b) [relu] y = Relu (h)
        }""",
        "w b",
    ),
    "pool": (
        "g (float[N, 2, 6, 5] x) => (y) { y = MaxPool <kernel_shape = [2, 2]> (x) }",
        "",
    ),
    "lstm": (
        """g (float[5, N, 3] x, float[1, 8, 3] w, float[1, 8, 2] r) => (y) {
            [lstm] h = LSTM <hidden_size = 2> (x, w, r) [tanh] y = Tanh (h)
        }""",
        "w r",
    ),
    "twice": (
        "g (float[N, 4] x) => (y) { a = Tanh (x) b = Tanh (a) c = Erf (b) y = Tanh (c) }",
        "",
    ),
    "optional inputs": (
        "g (float[N, 4] x, float h) => (y) { a = Clip (x, , h) y = Mul (a, a) }",
        "",
    ),
}


@pytest.fixture(params=GRAPHS)
def training(request):
    text, weights = GRAPHS[request.param]
    wrt = None if weights else ["x"]
    return gt.grad(parse(text, weights), loss="sum:y", wrt=wrt)


def written(graph, path) -> onnx.ModelProto:
    gt.save(graph, path, functions=True, force=True)
    return onnx.load(path)


def feeds(training) -> dict[str, np.ndarray]:
    return {
        v.name: floats(*(3 if not isinstance(d, int) else d for d in v.shape))
        for v in training.model.graph.inputs
    }


def stock(proto: onnx.ModelProto, given) -> dict[str, np.ndarray]:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, given), strict=True))


def calls(model: ir.Model):
    return [
        (n.name, n.op_type, tuple(v.name if v else None for v in n.inputs),
         tuple(v.name for v in n.outputs), {k: a.value for k, a in n.attributes.items()},
         n.metadata_props["gradtool.stage"], n.metadata_props["gradtool.source"])
        for n in model.graph.all_nodes() if n.domain == DOMAIN
    ]  # fmt: skip


def test_the_file_is_valid_and_every_call_has_a_function(training, tmp_path):
    proto = written(training, tmp_path / "g.onnx")
    onnx.checker.check_model(proto, full_check=True)
    called = {n.op_type for n in proto.graph.node if n.domain == DOMAIN}

    assert called
    assert called == {f.name for f in proto.functions}
    assert {f.domain for f in proto.functions} == {DOMAIN}


def test_functions_are_of_the_opset_of_the_model_and_spell_everything_out(training, tmp_path):
    proto = written(training, tmp_path / "g.onnx")
    (version,) = (o.version for o in proto.opset_import if not o.domain)
    for function in proto.functions:
        assert [(o.domain, o.version) for o in function.opset_import] == [("", version)]
        assert not function.attribute
        assert not function.attribute_proto
        assert {n.domain for n in function.node} == {""}
    for node in proto.graph.node:
        if node.domain == DOMAIN:
            assert all(node.input)
            assert not node.attribute


def test_onnxruntime_runs_them(training, tmp_path):
    given = feeds(training)
    theirs = stock(written(training, tmp_path / "g.onnx"), given)
    ours = gt.run(training, given).gradients

    for value, output in training.gradients.items():
        np.testing.assert_allclose(theirs[output], ours[value], rtol=2e-4, atol=1e-5)


def test_the_inliner_of_onnx_takes_them(training, tmp_path):
    given = feeds(training)
    proto = onnx.inliner.inline_local_functions(written(training, tmp_path / "g.onnx"))
    theirs = stock(proto, given)
    ours = gt.run(training, given).gradients

    assert not proto.functions
    for value, output in training.gradients.items():
        np.testing.assert_allclose(theirs[output], ours[value], rtol=2e-4, atol=1e-5)


def test_loading_folds_them_back(training, tmp_path):
    written(training, tmp_path / "g.onnx")
    again = gt.load(tmp_path / "g.onnx")

    assert calls(again) == calls(training.model)
    assert sorted(again.graph.initializers) == sorted(training.model.graph.initializers)
    assert not again.functions


def test_the_same_use_has_one_function_and_another_one_its_own():
    training = gt.grad(parse(GRAPHS["twice"][0]), loss="sum:y", wrt=["x"])
    model = training.model.clone()

    assert localise(model) == 2
    assert sorted(f.name for f in model.functions.values()) == ["ErfGrad_1", "TanhGrad_1"]
    assert [n.op_type for n in model.graph if n.domain == DOMAIN].count("TanhGrad_1") == 3


def test_another_shape_is_another_function():
    text = "g (float[2, 4] x, float[3] z) => (y) { a = Tanh (x) b = Tanh (z) c = ReduceSum (a) "
    model = parse(text + "d = ReduceSum (b) y = Add (c, d) }")
    made = gt.grad(model, loss="sum:y", wrt=["x", "z"]).model.clone()

    assert localise(made) == 2
    assert sorted(f.name for f in made.functions.values()) == ["TanhGrad_1", "TanhGrad_2"]


def test_the_same_graph_gives_the_same_bytes(training, tmp_path):
    one = written(training, tmp_path / "a.onnx").SerializeToString(deterministic=True)
    two = written(training, tmp_path / "b.onnx").SerializeToString(deterministic=True)

    assert one == two


def test_a_graph_without_composites_has_no_functions(tmp_path):
    training = gt.grad(parse("g (float[3] x) => (y) { y = Neg (x) }"), loss="sum:y", wrt=["x"])
    proto = written(training, tmp_path / "g.onnx")

    assert not proto.functions
    assert {o.domain for o in proto.opset_import} == {""}


def test_a_function_that_was_edited_is_run_as_it_was_edited(tmp_path):
    training = gt.grad(parse(GRAPHS["twice"][0]), loss="sum:y", wrt=["x"])
    proto = written(training, tmp_path / "g.onnx")
    (function,) = (f for f in proto.functions if f.name == "TanhGrad_1")
    last = next(n for n in function.node if n.op_type == "Mul")
    last.op_type = "Add"
    (tmp_path / "g.onnx").write_bytes(proto.SerializeToString())
    again = gt.load(tmp_path / "g.onnx")

    assert {n.op_type for n in again.graph if n.domain == DOMAIN} == {"ErfGrad"}
    given = {"x": floats(3, 4)}
    np.testing.assert_allclose(
        gt.run(again, given).gradients["x"], stock(proto, given)["x_grad"], rtol=1e-4
    )


def test_a_body_that_cannot_stand_alone_is_inlined(monkeypatch, tmp_path):
    from gradtool.passes import local_functions

    def fail(_op, _node):
        raise ModelError("no")

    monkeypatch.setattr(local_functions, "emit_body", fail)
    training = gt.grad(parse(GRAPHS["twice"][0]), loss="sum:y", wrt=["x"])
    proto = written(training, tmp_path / "g.onnx")

    assert not proto.functions
    assert {n.domain for n in proto.graph.node} == {""}
    assert calls(gt.load(tmp_path / "g.onnx")) == calls(training.model)


def test_metadata_stays_on_the_call():
    training = gt.grad(parse(GRAPHS["twice"][0]), loss="sum:y", wrt=["x"])
    model = training.model.clone()
    localise(model)
    node = next(n for n in model.graph if n.domain == DOMAIN)

    assert node.metadata_props["gradtool.stage"] == "backward"
    assert node.metadata_props[CALL] == node.name
    assert '"op": "TanhGrad"' in node.metadata_props[CALLEE]

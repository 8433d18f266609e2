"""BatchNormalization in training mode becomes a composite, and nothing else changes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from checkers import evaluate

from gradtool import shapes
from gradtool.emit.builder import Builder
from gradtool.ops.composites.calls import inline
from gradtool.ops.driver import differentiate
from gradtool.passes.training_forms import prepare

MODEL = """
<ir_version: 10, opset_import: ["": 20]>
net (float[n, 3, 4, 5] x, float[3] scale, float[3] bias, float[3] mean, float[3] var)
    => (float[n, 3, 4, 5] z, float[3] mean_1, float[3] mean_2, float[3] var_2)
{
    [first] y, mean_1, var_1 = BatchNormalization <training_mode = 1, momentum = 0.7>
        (x, scale, bias, mean, var)
    r = Relu (y)
    [second] z, mean_2, var_2 = BatchNormalization <training_mode = 1, epsilon = 0.01>
        (r, scale, bias, mean_1, var_1)
}
"""


def read(text):
    model = ir.from_onnx_text(text)
    shapes.infer(model)
    return model


def feeds():
    rng = np.random.default_rng(3)
    made = {n: rng.normal(size=3).astype(np.float32) for n in ("scale", "bias", "mean")}
    made["x"] = rng.normal(size=(6, 3, 4, 5)).astype(np.float32)
    made["var"] = rng.uniform(0.5, 1, 3).astype(np.float32)
    return made


def test_names_readers_and_order_stay():
    model = read(MODEL)
    outputs = [o.name for o in model.graph.outputs]

    assert prepare(model, Builder(model)) == 2

    assert [n.op_type for n in model.graph] == [
        "BatchNormalizationTraining", "Relu", "BatchNormalizationTraining",
    ]  # fmt: skip
    first, relu, second = model.graph
    assert [n.name for n in (first, second)] == ["first", "second"]
    assert [o.name for o in model.graph.outputs] == outputs
    assert relu.inputs[0] is first.outputs[0]
    assert [v.name for v in first.outputs[:3]] == ["y", "mean_1", "var_1"]
    assert first.metadata_props["gradtool.stage"] == "forward"
    assert first.attributes["momentum"].value == pytest.approx(0.7)
    assert second.attributes["epsilon"].value == pytest.approx(0.01)
    assert second.attributes["momentum"].value == pytest.approx(0.9)


def test_inference_stays_and_preparing_again_does_nothing():
    model = read(MODEL.replace("training_mode = 1, epsilon", "training_mode = 0, epsilon").replace(
        "z, mean_2, var_2 =", "z =").replace(", float[3] mean_2, float[3] var_2", ""))  # fmt: skip

    assert prepare(model, Builder(model)) == 1
    assert prepare(model, Builder(model)) == 0
    assert next(n for n in model.graph if n.name == "second").op_type == "BatchNormalization"


def test_the_forward_pass_stays_the_same():
    before, after = read(MODEL), read(MODEL)
    prepare(after, Builder(after))

    first, second = evaluate(before, feeds()), evaluate(after, feeds())

    for name in ("z", "mean_1", "mean_2", "var_2"):
        np.testing.assert_array_equal(first[name], second[name])


def gradient(*, prepared):
    model = read(MODEL)
    op = Builder(model)
    if prepared:
        prepare(model, op)
    by_name = {v.name: v for v in model.graph.inputs}
    outputs = {v.name: v for v in model.graph.outputs}
    head = ir.Value(name="head", shape=outputs["z"].shape, type=outputs["z"].type)
    model.graph.inputs.append(head)
    made = differentiate(op, {outputs["z"]: head}, [by_name[n] for n in ("x", "scale", "bias")])
    model.graph.outputs.extend(made.gradients.values())
    given = feeds()
    given["head"] = np.random.default_rng(4).normal(size=given["x"].shape).astype(np.float32)
    return model, given, [g.name for g in made.gradients.values()]


def test_gradients_agree_with_those_of_the_standard_form_and_of_onnxruntime():
    ort = pytest.importorskip("onnxruntime")
    plain, given, names = gradient(prepared=False)
    model, _, others = gradient(prepared=True)
    expected, found = evaluate(plain, given), evaluate(model, given)

    inline(model)
    proto = ir.to_proto(model).SerializeToString()
    session = ort.InferenceSession(proto, providers=["CPUExecutionProvider"])
    theirs = session.run(others, given)

    for name, other, runtime in zip(names, others, theirs, strict=True):
        np.testing.assert_allclose(found[other], expected[name], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found[other], runtime, rtol=1e-4, atol=1e-5)


def test_the_backward_pass_reads_the_kept_statistics():
    model, _, _ = gradient(prepared=True)
    grads = [n for n in model.graph if n.op_type == "BatchNormalizationGrad"]
    kept = [n for n in model.graph if n.op_type == "BatchNormalizationTraining"]

    assert len(grads) == 2
    for forward, backward in zip(kept, reversed(grads), strict=True):
        assert list(backward.inputs[2:4]) == list(forward.outputs[3:5])

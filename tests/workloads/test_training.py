"""Options of a training graph: buffers that gradients are added to, a seed, callbacks."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from graphs import floats, parse, stock

import gradtool as gt

MODEL = """g (float[N, 3] x, float[3, 4] w, float[4] b) => (y) {
    h = MatMul (x, w) s = Add (h, b) y = Tanh (s)
}"""


def trained(**options):
    return gt.grad(parse(MODEL, "w b"), loss="sum:y", **options)


# ----------------------------------------------------------------------------- buffers


def test_gradients_are_added_to_what_is_there():
    plain, buffered = trained(), trained(grad_buffers=True)
    x = floats(2, 3)
    before = {"w_grad_in": floats(3, 4, seed=1), "b_grad_in": floats(4, seed=2)}
    alone = gt.run(plain, {"x": x}).gradients
    added = gt.run(buffered, {"x": x, **before}).gradients

    assert dict(buffered.gradients) == dict(plain.gradients) == {"w": "w_grad", "b": "b_grad"}
    for name, gradient in alone.items():
        np.testing.assert_array_equal(added[name], gradient + before[f"{name}_grad_in"])


def test_stock_onnxruntime_adds_them_too():
    pytest.importorskip("onnxruntime")
    training = trained(grad_buffers=True)
    feeds = {"x": floats(2, 3), "w_grad_in": floats(3, 4), "b_grad_in": floats(4)}

    np.testing.assert_allclose(
        gt.run(training, feeds).gradients["w"], stock(training.model, **feeds)["w_grad"], rtol=1e-5
    )


def test_buffers_that_are_not_given_are_zero():
    x = floats(2, 3)
    alone = gt.run(trained(), {"x": x}).gradients

    for name, gradient in gt.run(trained(grad_buffers=True), {"x": x}).gradients.items():
        np.testing.assert_array_equal(gradient, alone[name])


def test_metadata_says_which_input_belongs_to_which_value():
    props = trained(grad_buffers=True).model.metadata_props

    assert json.loads(props["gradtool.buffers"]) == {"w": "w_grad_in", "b": "b_grad_in"}
    assert "gradtool.buffers" not in trained().model.metadata_props


def test_a_sum_is_written_over_the_gradient_where_that_dies():
    """The buffers themselves are inputs: running twice must not add twice."""
    training = trained(grad_buffers=True)
    bound = gt.plan(training, dims={"N": 2})
    sums = {bound.program.gradients[n] for n in ("w", "b")}
    shared = [b for b in bound.buffers if sums & set(b.values) and len(b.values) > 1]

    assert len(shared) == 2
    feeds = {"x": floats(2, 3), "w_grad_in": floats(3, 4), "b_grad_in": floats(4)}
    once, often = gt.run(training, feeds), gt.run(training, feeds, repeat=3)
    np.testing.assert_array_equal(once.gradients["w"], often.gradients["w"])


def test_two_values_with_one_gradient_have_buffers_of_their_own():
    model = parse("g (float[3] a, float[3] b) => (y) { s = Add (a, b) y = Exp (s) }")
    training = gt.grad(model, loss="sum:y", wrt=["a", "b"], grad_buffers=True)
    zero, one = np.zeros(3, np.float32), np.ones(3, np.float32)
    found = gt.run(training, {"a": zero, "b": zero, "a_grad_in": one}).gradients

    np.testing.assert_array_equal(found["a"], [2, 2, 2])
    np.testing.assert_array_equal(found["b"], [1, 1, 1])


# -------------------------------------------------------------------------------- seed


def test_the_gradient_of_the_loss_may_be_an_input():
    training = trained(loss_seed=True)
    x = floats(2, 3)
    plain = gt.run(trained(), {"x": x}).gradients
    scaled = gt.run(training, {"x": x, "loss_grad": np.float32(8)}).gradients

    for name, gradient in plain.items():
        np.testing.assert_array_equal(scaled[name], 8 * gradient)


# --------------------------------------------------------------------------- callbacks


def test_every_emitted_node_is_shown_once():
    seen: list[ir.Node] = []
    training = trained(on_node=seen.append)
    stages = {n.name: n.metadata_props["gradtool.stage"] for n in training.model.graph}
    names = [n.name for n in seen]

    assert len(set(names)) == len(names)
    assert {name for name, stage in stages.items() if stage == "backward"} <= set(names)
    assert {"MatMul", "Add", "Tanh"}.isdisjoint(names)


def test_a_callback_knows_where_a_node_comes_from_and_may_annotate_it():
    def annotate(node):
        node.metadata_props["mine"] = node.metadata_props["gradtool.source"]

    training = trained(on_node=annotate)
    names = {n.name for n in training.model.graph}

    for node in training.model.graph:
        if node.metadata_props["gradtool.stage"] == "backward":
            assert node.metadata_props["mine"] in {*names, ""}


def test_a_callback_sees_types_and_shapes():
    shapes = {}
    trained(on_node=lambda n: shapes.update({v.name: (v.dtype, v.shape) for v in n.outputs}))

    assert shapes
    assert all(dtype is not None and shape is not None for dtype, shape in shapes.values())


# ------------------------------------------------------------------------ straight-through


def test_rules_see_whether_gradients_go_straight_through(monkeypatch):
    from gradtool.ops import gradients

    seen = []

    def rule(op, _node, dy):
        seen.append(op.ste)
        return dy

    entry = gradients.Gradient("", "Tanh", 1, rule)
    monkeypatch.setitem(gradients.RULES.by_operator(), ("", "Tanh"), [entry])
    trained()
    trained(ste=True)

    assert seen == [False, True]


QUANTISED = """g (float[N, 3] x, float[3] w, float s, uint8 z) => (y) {
    h = Mul (x, w) q = QuantizeLinear (h, s, z) d = DequantizeLinear (q, s, z) y = Mul (d, d)
}"""


def test_quantisation_of_what_is_computed_is_passed_without_a_flag():
    model = parse(QUANTISED.replace("=> (y) {", "=> (y) <float s = {0.125}, uint8 z = {128}> {")
                  .replace(", float s, uint8 z", ""), "w")  # fmt: skip
    training = gt.grad(model, loss="sum:y", wrt=["w"])
    x, w = floats(2, 3), model.graph.initializers["w"].const_value.numpy()
    d = np.clip(np.rint(x * w / 0.125), -128, 127) * 0.125

    np.testing.assert_allclose(
        gt.run(training, {"x": x}).gradients["w"], (2 * d * x).sum(0), rtol=1e-5
    )


def test_a_file_from_before_constants_were_free_is_differentiated(tmp_path):
    """Up to version 3 of the IR every initializer is an input as well; what is written has more."""
    proto = onnx.parser.parse_model(
        '<ir_version: 3, opset_import: ["" : 20]> g (float[2, 3] x) => (float[2, 3] y) '
        "{ y = Sum (x, x) }"
    )
    onnx.save(proto, tmp_path / "model.onnx")
    training = gt.grad(gt.load(tmp_path / "model.onnx"))
    gt.save(training.model, tmp_path / "out.onnx")

    assert onnx.load(tmp_path / "out.onnx").ir_version == 4

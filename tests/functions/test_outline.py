"""Metadata is not believed: what differs from the body of a composite stays as it is."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from graphs import floats, parse

import gradtool as gt
from gradtool.graph.composites import composites
from gradtool.graph.metadata import CALL, CALLEE
from gradtool.ops.composites.calls import inline
from gradtool.ops.composites.outline import outline


@pytest.fixture
def tanh():
    return gt.grad(parse("g (float[N, 4] x) => (y) { [t] y = Tanh (x) }"), loss="sum:y", wrt=["x"])


def test_a_composite_is_replaced_only_where_it_says_so(tanh):
    model = tanh.model
    inline(model)
    for node in model.graph:
        node.metadata_props.pop(CALLEE, None)

    assert outline(model) == 0


def callee(model):
    return next(n for n in model.graph if CALLEE in n.metadata_props)


def rewrite(**changes):
    def tamper(model):
        node = callee(model)
        said = json.loads(node.metadata_props[CALLEE]) | changes
        node.metadata_props[CALLEE] = json.dumps(said)

    return tamper


def metadata(text):
    def tamper(model):
        callee(model).metadata_props[CALLEE] = text

    return tamper


def other_operator(model):
    node = next(n for n in model.graph if CALL in n.metadata_props and n.op_type == "Mul")
    node.op_type = "Add"


def other_constant(model):
    for value in model.graph.initializers.values():
        if value.const_value.dtype == ir.DataType.FLOAT:
            array = value.const_value.numpy() + np.float32(1)
            value.const_value = ir.Tensor(array, name=value.name)


def swapped_inputs(model):
    node = next(n for n in model.graph if CALL in n.metadata_props and n.op_type == "Sub")
    a, b = node.inputs
    node.replace_input_with(0, b)
    node.replace_input_with(1, a)


def missing_node(model):
    node = [n for n in model.graph if CALL in n.metadata_props][-1]
    node.metadata_props.pop(CALL)


def node_in_between(model):
    nodes = [n for n in model.graph if CALL in n.metadata_props]
    other = ir.Node("", "Neg", [nodes[0].outputs[0]], name="between")
    other.outputs[0].name = "between"
    other.outputs[0].shape, other.outputs[0].type = (
        nodes[0].outputs[0].shape,
        nodes[0].outputs[0].type,
    )
    model.graph.insert_after(nodes[0], other)


def inner_value_is_an_output(model):
    value = callee(model).outputs[0]
    model.graph.outputs.append(value)


def inner_value_is_read_outside(model):
    other = ir.Node("", "Neg", [callee(model).outputs[0]], name="outside")
    other.outputs[0].name = "outside"
    model.graph.append(other)


TAMPERED = [
    other_operator,
    other_constant,
    swapped_inputs,
    missing_node,
    node_in_between,
    inner_value_is_an_output,
    inner_value_is_read_outside,
    *(
        pytest.param(metadata(text), id=f"metadata {text[:12]}")
        for text in ("", "null", "[]", "{}", "[1", '{"op": []}', '{"op": {"a": 1}}', '"TanhGrad"')
    ),
    *(
        pytest.param(rewrite(**changes), id=str(changes))
        for changes in (
            {"op": "NoSuchThing"},
            {"op": "ReluGrad"},
            {"op": "LSTMGrad"},
            {"op": "ConvGradWeight"},
            {"inputs": []},
            {"inputs": ["x", "x"]},
            {"inputs": ["y", "nowhere"]},
            {"inputs": ["x_grad", "x_grad"]},
            {"inputs": [["y"], {}]},
            {"inputs": [None, None]},
            {"outputs": []},
            {"outputs": ["y"]},
            {"outputs": ["x_grad", "x_grad"]},
            {"attributes": {"alpha": 1.0}},
            {"attributes": {"axis": None}},
            {"attributes": []},
            {"attributes": {"op": "x"}},
        )
    ),
]


@pytest.mark.parametrize("tamper", TAMPERED)
def test_what_differs_from_the_body_stays_as_it_is(tanh, tamper):
    model = tanh.model
    inline(model)
    tamper(model)
    before = ir.to_proto(model).SerializeToString(deterministic=True)

    assert outline(model) == 0
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", composites())
def test_no_composite_can_be_talked_into_anything(tanh, name):
    """Metadata that names any composite, with inputs of any kind, is refused and not an error."""
    model = tanh.model
    inline(model)
    rewrite(op=name)(model)

    assert outline(model) == (name == "TanhGrad")


def test_what_does_not_fold_back_still_runs(tanh):
    model = tanh.model
    inline(model)
    missing_node(model)
    outline(model)
    x = floats(2, 4)

    np.testing.assert_allclose(
        gt.run(model, {"x": x}).gradients["x"], 1 - np.tanh(x) ** 2, rtol=1e-4, atol=1e-6
    )


MASKED = """<ir_version: 10, opset_import: ["" : 23]>
g (float[2, 2, 3, 4] q, float[3, 3] m, float[3] n) => (y) {
    a = Attention <softcap = 2.0> (q, q, q, m) b = Tanh (a) t = Transpose <perm = [0, 1, 3, 2]> (b)
    s = MatMul (b, t) u = Add (s, m) w = Add (u, n) p = Softmax <axis = -1> (w) c = MatMul (p, b)
    y = Tanh (c)
}"""


@pytest.mark.parametrize("former", ["FusedAttentionGrad", "AttentionGrad"])
def test_attention_whose_call_had_another_signature_runs_as_standard_operators(former, tmp_path):
    """The gradient took masks one behind the other, or had another name without the statistic."""
    model = gt.load(onnx.parser.parse_model(MASKED))
    training = gt.grad(model, loss="sum:y", wrt=[], input_grad=["q", "m", "n"])
    feeds = {"q": floats(2, 2, 3, 4), "m": floats(3, 3, seed=1), "n": floats(3, seed=2)}
    expected = gt.run(training, feeds).gradients
    model = training.model
    inline(model)
    for node in model.graph:
        said = json.loads(node.metadata_props.get(CALLEE, "{}"))
        if said.get("op") == "FusedAttentionGrad":
            q, k, v, lse, dy, dlse, mask, *rest = said["inputs"]
            if lse and former == "FusedAttentionGrad":
                said["inputs"] = [q, k, v, lse, dy, dlse, mask, rest[-1]]
            elif not lse and former == "AttentionGrad":
                said |= {"op": former, "inputs": [q, k, v, mask, "", "", "", dy, ""]}
            node.metadata_props[CALLEE] = json.dumps(said)
    gt.save(model, tmp_path / "former.onnx")
    again = gt.load(tmp_path / "former.onnx")
    found = gt.run(again, feeds).gradients

    assert sum(node.op_type == "FusedAttentionGrad" for node in again.graph) == 1
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-5, atol=1e-6)

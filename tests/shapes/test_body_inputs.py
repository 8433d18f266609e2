"""Inputs of bodies have the types and shapes of what flows in, whatever the file says of them."""

import onnx_ir as ir
import pytest

from gradtool import shapes
from gradtool.errors import ModelError

SEQUENCE = ir.SequenceType(ir.TensorType(ir.DataType.FLOAT))


def inferred(body):
    """Every value of a model by name, its bodies included."""
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]> g {body}')
    assert shapes.infer(model) == ()
    values = {}
    for graph in model.graphs():
        values |= {v.name: v for v in (*graph.inputs, *(v for n in graph for v in n.outputs))}
    return values


def test_a_carried_sequence_needs_no_type():
    found = inferred("""(float[2, 3] x, int64 n, bool c) => (y) {
        e = SequenceEmpty ()
        s = Loop (n, c, e) <body = b (int64 i, bool go, t) => (on, u) {
            on = Identity (go)
            u = SequenceInsert (t, x)
        }>
        y = ConcatFromSequence <axis = 0> (s)
    }""")

    assert found["t"].type == found["s"].type == SEQUENCE
    assert str(found["t"].shape) == "[2,3]"
    assert str(found["y"].shape[1]) == "3"


def test_nested_loops_hand_an_untyped_sequence_on():
    found = inferred("""(float[2, 3] x, int64 n, bool c) => (y) {
        e = SequenceEmpty ()
        s = Loop (n, c, e) <body = b (int64 i, bool go, t) => (on, u) {
            on = Identity (go)
            u = Loop (n, c, t) <body = b2 (int64 i2, bool go2, t2) => (on2, u2) {
                on2 = Identity (go2)
                u2 = SequenceInsert (t2, x)
            }>
        }>
        y = SequenceAt (s, n)
    }""")

    assert found["t"].type == found["t2"].type == found["u"].type == SEQUENCE
    assert str(found["y"].shape) == "[2,3]"


def test_a_branch_that_returns_an_untyped_sequence_agrees_with_an_empty_one():
    found = inferred("""(float[2, 3] x, int64 n, bool c) => (y) {
        e = SequenceConstruct (x)
        s = Loop (n, c, e) <body = b (int64 i, bool go, t) => (on, u) {
            on = Identity (go)
            u = If (go) <
                then_branch = p () => (q) { q = SequenceEmpty () },
                else_branch = r () => (v) { v = Identity (t) }
            >
        }>
        y = SequenceLength (s)
    }""")

    assert found["u"].type == SEQUENCE


def test_a_mapped_body_is_given_elements_and_tensors():
    found = inferred("""(float[n, 3] x, float[3, 2] w) => (s) {
        e = SequenceConstruct (x, x)
        s = SequenceMap (e, w) <body = b (a, v) => (y) { y = MatMul (a, v) }>
    }""")

    assert (str(found["a"].shape), str(found["v"].shape)) == ("[n,3]", "[3,2]")
    assert str(found["y"].shape) == "[n,2]"


@pytest.mark.parametrize("said", ["int64", "float[7, 7]", "float"])
def test_what_a_file_declares_of_a_body_s_input_is_not_believed(said):
    found = inferred(f"""(float[2, 3] x, int64 n, bool c) => (y) {{
        y = Loop (n, c, x) <body = b (int64 i, bool go, {said} h) => (on, u) {{
            on = Identity (go)
            u = Tanh (h)
        }}>
    }}""")

    assert found["h"].dtype == ir.DataType.FLOAT
    assert str(found["h"].shape) == str(found["y"].shape) == "[2,3]"


def test_an_inner_loop_starts_with_what_the_outer_one_has_widened():
    found = inferred("""(float[2, 3] x, int64 n, bool c) => (y, z) {
        y, z = Loop (n, c, x) <body = b (int64 i, bool go, h) => (on, u, r) {
            on = Identity (go)
            v = Loop (n, c, h) <body = b2 (int64 i2, bool go2, k) => (on2, k2) {
                on2 = Identity (go2)
                k2 = Tanh (k)
            }>
            u = Concat <axis = 0> (h, h)
            r = ReduceSum <keepdims = 0> (v)
        }>
    }""")

    assert str(found["h"].shape) == str(found["k"].shape) == "[h_dim0,3]"


def test_an_error_that_no_type_explains_is_told():
    with pytest.raises(ModelError, match="MatMul"):
        inferred("""(float[2, 3] x, int64 n, bool c) => (y) {
            y = Loop (n, c, x) <body = b (int64 i, bool go, h) => (on, u) {
                on = Identity (go)
                u = MatMul (h, h)
            }>
        }""")

from __future__ import annotations

import numpy as np
import pytest
from conftest import build
from graphs import parse

import gradtool as gt
from gradtool.losses.output_heads import ending

HEAD = "g (float[2, 3, 4, 6] x, float[6, 5] w, float[7, 3, 1, 1] k, float[5] b) => (y) {{ {} }}"


@pytest.mark.parametrize(
    ("body", "op", "axis"),
    [
        ("y = MatMul (x, w)", "MatMul", 3),
        ("h = MatMul (x, w) y = Add (h, b)", "MatMul", 3),
        ("h = MatMul (x, w) y = Div (h, b)", "MatMul", 3),
        ("y = Conv (x, k)", "Conv", 1),
        ("h = Conv (x, k) y = Transpose <perm = [1, 0, 3, 2]> (h)", "Conv", 0),
        ("h = Conv (x, k) y = Flatten <axis = 2> (h)", "Conv", None),
        ("h = Conv (x, k) s = Constant <value_ints = [2, 7, 24]> () y = Reshape (h, s)", "Conv", 1),
        ("h = MatMul (x, w) s = Constant <value_ints = [-1, 5]> () y = Reshape (h, s)", "MatMul",
         1),
        ("h = MatMul (x, w) s = Constant <value_ints = [0, 2]> () y = Unsqueeze (h, s)", "MatMul",
         5),
        ("y = Softmax <axis = -2> (x)", "Softmax", 2),
        ("h = Softmax <axis = 1> (x) y = Transpose <perm = [0, 2, 3, 1]> (h)", "Softmax", 3),
        ("h = Softmax (x) y = Add (h, h)", None, None),
        ("h = MatMul (x, w) y = Mul (h, h)", None, None),
        ("y = Exp (x)", None, None),
    ],
)  # fmt: skip
def test_a_value_ends_in_an_operator_with_its_classes_on_an_axis(body, op, axis):
    model = parse(HEAD.format(body), "w k b")
    found = ending(model.graph.outputs[0])

    assert (found.node.op_type if found.node else None) == op
    assert found.axis == axis


@pytest.mark.parametrize(
    ("body", "single"),
    [
        ("h = ReduceMean (x, a) y = MatMul (h, v)", True),
        ("h = MatMul (x, v) y = Squeeze (h, m)", True),
        ("y = MatMul (x, u)", True),
        ("y = MatMul (x, w)", False),
    ],
)
def test_one_number_in_each_place_is_seen(body, single):
    text = """g (float[2, 3, 6] x, float[6, 1] v, float[6] u, float[6, 5] w) => (y)
        <int64[1] a = {1}, int64[1] m = {-1}> { %s }""".replace("%s", body)

    assert ending(parse(text, "v u w").graph.outputs[0]).single is single


def test_branches_that_end_in_products_are_scores():
    model = build(
        """net (float[b, 4] x, bool c) => (float[b, 3] logits) {
            logits = If (c) <
                then_branch = t () => (float[b, 3] p) { p = MatMul (x, w) },
                else_branch = e () => (float[b, 3] q) { n = Neg (x) q = MatMul (n, w) }>
        }""",
        w=np.ones((4, 3), np.float32),
    )
    (logits,) = gt.load(model).graph.outputs

    found = ending(logits)

    assert (found.linear, found.axis) == (True, 1)
    assert gt.grad(gt.load(model)).labels == ("labels",)


def test_what_lies_beside_a_result_ends_in_nothing():
    body = """g (float[2, 3, 4, 4] x, float[3, 3, 1, 1] k, float[3] s) => (z, m, v) {
        h = Conv (x, k)
        z, m, v = BatchNormalization <training_mode = 1> (h, s, s, s, s)
    }"""
    scores, *statistics = parse(body, "k s").graph.outputs

    assert ending(scores).linear
    assert [ending(value).node for value in statistics] == [None, None]


def test_a_value_without_a_shape_has_no_axis_of_one_class():
    body = "g (float[2, 6] x, float[6, 5] w) => (y) { y = Gemm (x, w) }"
    value = parse(body, "w").graph.outputs[0]
    value.shape = None

    assert not ending(value).single

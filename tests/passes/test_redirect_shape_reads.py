"""Backward reads sizes off values that it keeps anyway."""

from __future__ import annotations

import pytest
from graphs import parse
from staged import FORWARD, hoisted, saved_less, staged

import gradtool as gt
from gradtool.graph.stages import is_backward, is_hoisted
from gradtool.passes.redirect_shape_reads import redirect_shape_reads
from gradtool.passes.residuals import residuals


def test_a_size_is_asked_of_a_value_that_is_kept_anyway():
    text = """g (float[N, 4] x, float[4] w) => (y) {
        h = Mul (x, w) e = Exp (h) n = Neg (e) y = ReduceSum <keepdims = 0> (n)
    }"""
    after = gt.grad(parse(text, "w"), loss="y").model
    (shape,) = (n for n in after.graph if n.op_type == "Shape")

    assert shape.inputs[0].name == "e"
    assert is_backward(shape)


def test_a_size_is_passed_on_where_no_other_value_has_it():
    text = """g (float[N, 4] x, float[4, 3] w) => (y) {
        h = MatMul (x, w) y = ReduceSum <keepdims = 0> (h)
    }"""
    after = gt.grad(parse(text, "w"), loss="y").model

    assert [n.op_type for n in after.graph if is_hoisted(n)] == ["Shape"]
    assert residuals(after).bytes == 16


BACKWARD = {
    "before": "s = Shape (b) p = Mul (g, a) q = ReduceSum (p) dx = Expand (q, s)",
    "after": "p = Mul (g, a) q = ReduceSum (p) s = Shape (b) dx = Expand (q, s)",
    "size": "s = Size (b) p = Mul (g, a) q = ReduceSum (p) r = Add (s, s) dx = Expand (q, r)",
}


@pytest.mark.parametrize(("order", "asked"), [("before", 1), ("after", 0), ("size", 0)])
def test_nothing_lives_longer_to_be_asked(order, asked):
    """`a` is kept up to the product: later on, and of a number of elements, forward passes them."""
    model = staged(f"g (float[N, 8] x, float[8] g) => (y, dx) {{ {FORWARD} {BACKWARD[order]} }}")

    assert redirect_shape_reads(model) == asked
    assert model.graph.node("s").inputs[0].name == ("a" if asked else "b")
    assert hoisted(saved_less(model)) == ([] if asked else ["s"])


def test_part_of_a_shape_is_asked_where_it_lies():
    text = f"""g (float[N, 8] x, float[8] g) => (y, dx) {{
        {FORWARD} s = Shape <start = -2, end = -1> (b) p = Mul (g, a) q = ReduceSum (p)
        dx = Expand (q, s)
    }}"""
    model = staged(text)
    node = model.graph.node("s")

    assert redirect_shape_reads(model) == 1
    assert (node.attributes["start"].as_int(), node.attributes["end"].as_int()) == (0, 1)

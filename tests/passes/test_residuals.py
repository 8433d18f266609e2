"""What crosses is what `--split` writes between its two files."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest
from graphs import parse

import gradtool as gt
from gradtool.passes.residuals import ASSUMED, Sizes, residuals
from gradtool.passes.split import split

SAMPLES = sorted((Path(__file__).resolve().parents[2] / "samples").glob("*.onnx"))


def names(model: ir.Model) -> list[str]:
    return [v.name for v in residuals(model).values]


def grad(text: str, weights: str = "w", **options) -> ir.Model:
    return gt.grad(parse(text, weights), **{"head_grads": True, **options}).model


def test_inputs_and_parameters_do_not_cross():
    model = grad("g (float[4, 8] x, float[8] w) => (y) { y = Mul (x, w) }", input_grad=["x"])

    assert names(model) == []
    assert residuals(model).bytes == 0


def test_a_result_of_the_model_crosses_at_no_cost():
    model = grad("g (float[4, 8] x, float[8] w) => (y) { h = Mul (x, w) y = Exp (h) }")

    assert names(model) == ["y"]
    assert residuals(model).bytes == 0


def test_a_layout_of_a_result_costs_nothing_either():
    text = """g (float[4, 8] x, float[8] w) => (y) <int64[1] flat = {-1}> {
        h = Mul (x, w) e = Exp (h) y = Reshape (e, flat)
    }"""

    assert residuals(grad(text)).bytes == 0


def test_two_layouts_of_a_value_cross_once():
    text = """g (float[4, 8] x, float[8] w) => (y) <int64[1] flat = {-1}> {
        h = Exp (p) r = Reshape (h, flat) s = Mul (r, r) n = ReduceSum (h) y = Add (s, n)
    }""".replace("{\n        h", "{\n        p = Mul (x, w) h")

    assert names(grad(text)) == ["h"]


def test_bytes_are_those_of_the_types():
    """h is read as doubles, the mask of Where as truth values."""
    text = """g (double[4, 8] x, double[8] w, double[8] v) => (y) {
        h = Mul (x, w) k = Mul (x, v) c = Greater (h, k) z = Where (c, h, k) y = Mul (z, z)
    }"""
    model = grad(text, "").clone()

    assert sorted(names(model)) == ["c", "z"]
    assert residuals(model).bytes == 4 * 8 * (8 + 1)


def test_open_sizes_are_given_or_assumed():
    model = grad("g (float[N, 8] x, float[8] w) => (y) { h = Mul (x, w) e = Exp (h) y = Neg (e) }")

    assert residuals(model).bytes == ASSUMED * 8 * 4
    assert residuals(model, {"N": 100}).bytes == 100 * 8 * 4


def test_sizes_are_expressions_of_symbols():
    def bytes_of(*shape):
        return Sizes({"n": 6}).bytes(
            ir.Value(name="v", shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.INT4))
        )

    assert bytes_of("2*n", 3) == 18
    assert bytes_of("m", 3) == 12
    assert bytes_of(None, 3) == 12
    assert bytes_of(3) == 2  # one byte and a half
    assert bytes_of() == 1


def test_a_value_without_a_rank_is_named_not_guessed():
    model = grad("g (float[4, 8] x, float[8] w) => (y) { h = Mul (x, w) e = Exp (h) y = Neg (e) }")
    (kept,) = residuals(model).values
    kept.shape = None

    assert residuals(model).bytes == 0
    assert residuals(model).unsized == (kept,)


def test_a_forward_model_has_no_boundary():
    model = parse("g (float[4, 8] x, float[8] w) => (y) { y = Mul (x, w) }", "w")

    assert residuals(model).values == ()


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_splitting_a_sample_writes_what_crosses(path):
    model = gt.grad(gt.load(path)).model
    kept, halves = residuals(model), split(model)
    given = {v.name: v for v in halves.backward.graph.inputs}
    size = Sizes()

    assert halves.saved == tuple(v.name for v in kept.values)
    assert kept.bytes == sum(size.bytes(given[v.name]) for v in kept.values if size.kept_bytes(v))

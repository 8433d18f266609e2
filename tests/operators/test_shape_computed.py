"""Bounds, sizes and indices that are computed when the graph runs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from cases import integers
from checkers import evaluate

from gradtool.emit.builder import Builder
from gradtool.ops.composites.calls import inline
from gradtool.ops.driver import differentiate

X = np.random.default_rng(2).uniform(-1, 1, (5, 6)).astype(np.float32)


def model_of(text):
    """The model that `text` describes."""
    model = ir.from_onnx_text(f"""<ir_version: 10, opset_import: ["": 20]> {text}""")
    op = Builder(model)
    for node in model.graph:
        op.infer(node)
    return model, op


def run(model, feeds):
    """The outputs of a model in stock onnxruntime."""
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


def gradient_of(text, feeds):
    """dx of Σ y · (1, 2, …) for the output y of a graph of x."""
    model, op = model_of(text)
    (y,) = model.graph.outputs
    known = run(model, feeds)[0]
    dy = ir.Value(name="dy", shape=ir.Shape([None] * known.ndim), type=y.type)
    dy.shape = y.shape
    model.graph.inputs.append(dy)
    found = differentiate(op, {y: dy}, [model.graph.inputs[0]])
    model.graph.outputs.extend(found.gradients.values())
    inline(model)
    seed = np.arange(1.0, 1 + known.size, dtype=np.float32).reshape(known.shape)
    return run(model, feeds | {"dy": seed})[1], seed


SLICE = """g (float[n,6] x, int64[1] s, int64[1] e, int64[1] a, int64[1] t) => (float[p,q] y) {{
    y = Slice (x, s, e{}) }}"""


@pytest.mark.parametrize(
    ("start", "end", "axis", "step"), [(1, 4, 0, 1), (-2, 99, 1, 1), (4, -9, 0, -2), (0, 6, -1, 3)]
)
def test_a_slice_with_computed_bounds(start, end, axis, step):
    bounds = dict(zip("seat", (integers([n]) for n in (start, end, axis, step)), strict=True))
    dx, dy = gradient_of(SLICE.format(", a, t"), {"x": X} | bounds)

    expected = np.zeros_like(X)
    expected[(slice(None),) * (axis % 2) + (slice(start, end, step),)] = dy
    np.testing.assert_array_equal(dx, expected)


def test_a_slice_with_computed_bounds_of_the_first_axis():
    text = """g (float[n,6] x, int64[1] s, int64[1] e) => (float[p,6] y) { y = Slice (x, s, e) }"""
    dx, dy = gradient_of(text, {"x": X, "s": integers([-3]), "e": integers([-1])})

    expected = np.zeros_like(X)
    expected[-3:-1] = dy
    np.testing.assert_array_equal(dx, expected)


def test_a_tile_with_computed_repetitions():
    text = "g (float[n,6] x, int64[2] r) => (float[p,q] y) { y = Tile (x, r) }"
    dx, dy = gradient_of(text, {"x": X, "r": integers(2, 3)})

    np.testing.assert_allclose(dx, dy.reshape(2, 5, 3, 6).sum((0, 2)))


def test_rows_that_are_chosen_by_their_values():
    text = """g (float[n,6] x, float[n] w) => (float[p,6] y) {
        zero = Constant <value_float = 0.0> ()
        chosen = Greater (w, zero)
        found = NonZero (chosen)
        first = Constant <value_ints = [0]> ()
        rows = Squeeze (found, first)
        y = Gather (x, rows)
    }"""
    dx, dy = gradient_of(text, {"x": X, "w": np.array([1, -1, 1, -1, 2], np.float32)})

    expected = np.zeros_like(X)
    expected[[0, 2, 4]] = dy
    np.testing.assert_array_equal(dx, expected)


def test_a_resize_to_the_size_of_another_value():
    text = """g (float[1,1,n,m] x, float[1,1,h,w] z) => (float[1,1,h,w] y) {
        size = Shape (z)
        y = Resize <mode = "linear"> (x, , , size)
    }"""
    x = X[None, None]
    dx, _ = gradient_of(text, {"x": x, "z": np.zeros((1, 1, 9, 4), np.float32)})

    assert dx.shape == x.shape
    np.testing.assert_allclose(dx.sum(), np.arange(1.0, 37).sum(), rtol=1e-6)


def test_sizes_that_depend_on_data_are_learned_while_running():
    text = """g (float[5,6] x, bool[5] c) => (float[p,6] y) { y = Compress <axis = 0> (x, c) }"""
    model, _ = model_of(text)
    chosen = np.array([True, False, True, True, False])

    np.testing.assert_array_equal(evaluate(model, {"x": X, "c": chosen})["y"], X[chosen])

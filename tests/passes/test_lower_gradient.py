"""Nodes of ai.onnx.preview.training::Gradient, replaced by the gradients that they ask for."""

from __future__ import annotations

import backend
import numpy as np
import onnx
import pytest
from graphs import floats

import gradtool as gt
from gradtool.errors import ModelError, Unreachable

HEADER = '<ir_version: 10, opset_import: ["" : 20, "ai.onnx.preview.training" : 1]>\n'
A, B = floats(3, 4), floats(3, 4, seed=1)


def run(body: str, **feeds) -> dict[str, np.ndarray]:
    model = onnx.parser.parse_model(HEADER + body)
    found = backend.prepare(model).run({k: np.asarray(v) for k, v in feeds.items()})
    return dict(zip((o.name for o in model.graph.output), found, strict=True))


def test_the_gradient_of_a_product():
    found = run(
        """g (float[3, 4] a, float[3, 4] b) => (float[3, 4] y, float[3, 4] da, float[3, 4] db) {
             y = Mul (a, b)
             da, db = ai.onnx.preview.training.Gradient <xs = ["a", "b"], y = "y"> (a, b)
           }""",
        a=A, b=B,
    )  # fmt: skip

    np.testing.assert_array_equal(found["da"], B)
    np.testing.assert_array_equal(found["db"], A)


def test_values_of_zs_are_constants():
    found = run(
        """g (float[3, 4] a) => (float[3, 4] y, float[3, 4] da) {
             h = Tanh (a)
             y = Mul (a, h)
             da = ai.onnx.preview.training.Gradient <xs = ["a"], zs = ["h"], y = "y"> (a, h)
           }""",
        a=A,
    )  # fmt: skip

    np.testing.assert_allclose(found["da"], np.tanh(A), rtol=1e-6)


def test_other_values_may_be_fed_than_those_that_are_named():
    found = run(
        """g (float[3, 4] a, float[3, 4] b) => (float[3, 4] y, float[3, 4] da) {
             h = Mul (a, a)
             y = Mul (h, a)
             da = ai.onnx.preview.training.Gradient <xs = ["a"], y = "y"> (b)
           }""",
        a=A, b=B,
    )  # fmt: skip

    np.testing.assert_allclose(found["y"], A**3, rtol=1e-6)
    np.testing.assert_allclose(found["da"], 3 * B**2, rtol=1e-5)


def test_y_may_come_after_the_node():
    found = run(
        """g (float[3, 4] a) => (float[3, 4] y, float[3, 4] twice) {
             da = ai.onnx.preview.training.Gradient <xs = ["a"], y = "y"> (a)
             twice = Add (da, da)
             y = Exp (a)
           }""",
        a=A,
    )  # fmt: skip

    np.testing.assert_allclose(found["twice"], 2 * np.exp(A), rtol=1e-6)


def test_the_gradient_of_a_gradient():
    found = run(
        """g (float[3, 4] a) => (float[3, 4] d2) {
             s = Sin (a)
             d1 = ai.onnx.preview.training.Gradient <xs = ["a"], y = "s"> (a)
             z = Mul (d1, d1)
             d2 = ai.onnx.preview.training.Gradient <xs = ["a"], y = "z"> (a)
           }""",
        a=A,
    )  # fmt: skip

    np.testing.assert_allclose(found["d2"], -2 * np.cos(A) * np.sin(A), rtol=1e-5, atol=1e-6)


def test_only_those_gradients_that_are_read_get_a_name():
    found = run(
        """g (float[3, 4] a, float[3, 4] b) => (float[3, 4] db) {
             y = Mul (a, b)
             , db = ai.onnx.preview.training.Gradient <xs = ["a", "b"], y = "y"> (a, b)
           }""",
        a=A, b=B,
    )  # fmt: skip

    np.testing.assert_array_equal(found["db"], A)


def test_a_name_that_does_not_exist():
    with pytest.raises(ModelError, match="there is no value 'nothing'"):
        run(
            """g (float[3, 4] a) => (float[3, 4] da) {
                 y = Exp (a)
                 da = ai.onnx.preview.training.Gradient <xs = ["a"], y = "nothing"> (a)
               }""",
            a=A,
        )


def test_a_value_that_y_does_not_depend_on():
    with pytest.raises(Unreachable, match="does not depend on all of xs"):
        run(
            """g (float[3, 4] a, float[3, 4] b) => (float[3, 4] da) {
                 y = Exp (b)
                 da = ai.onnx.preview.training.Gradient <xs = ["a"], y = "y"> (a)
               }""",
            a=A, b=B,
        )  # fmt: skip


def test_a_file_is_loaded_without_the_node(tmp_path):
    path = tmp_path / "model.onnx"
    text = """g (float[n, 4] a, float[n, 4] b) => (float[n, 4] y, float[n, 4] da) {
             p = Mul (a, b)
             y = Tanh (p)
             da = ai.onnx.preview.training.Gradient <xs = ["a"], zs = ["b"], y = "y"> (a, b)
           }"""
    onnx.save(onnx.parser.parse_model(HEADER + text), path)
    model = gt.load(path)
    gt.save(model, tmp_path / "out.onnx")
    proto = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(proto, full_check=True)

    assert {n.domain for n in proto.graph.node} == {""}
    assert [o.name for o in proto.graph.output] == ["y", "da"]

"""Gradients where sizes that a rule works with are open."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import floats, parse, stock

import gradtool as gt
from gradtool.errors import NotDifferentiable

FORMS = {
    "channels of an LRN": (
        "g (float[n, c, h, w] x) => (float[n, c, h, w] y) { y = LRN <size = 3> (x) }",
        (2, 5, 3, 2),
    ),
    "channels of an LRN of rank 2": (
        "g (float[n, c] x) => (float[n, c] y) { y = LRN <size = 3, alpha = 0.5> (x) }",
        (2, 5),
    ),
    "real and imaginary part": (
        """g (float[b, n, c] x) => (float[b, n, 2] y) {
            a = Constant <value_int = 1> ()
            y = DFT (x, , a)
        }""",
        (2, 4, 1),
    ),
    "an index of Einsum that is repeated": (
        """g (float[b, n, m] x) => (float[b, n] y) {
            z = Mul (x, x)
            y = Einsum <equation = "bii->bi"> (z)
        }""",
        (2, 3, 3),
    ),
    "repeats of a Tile": (
        """g (float[a, b] x) => (float[c, d] y) {
            r = Shape (x)
            y = Tile (x, r)
        }""",
        (2, 3),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_known_sizes(form):
    pytest.importorskip("onnxruntime")
    text, shape = FORMS[form]
    known = text.replace(text[text.index("[") : text.index("]") + 1], str(list(shape)), 1)
    x = floats(*shape)
    expected = gt.run(gt.grad(parse(known), loss="sum", wrt=["x"]), {"x": x}).gradients["x"]

    training = gt.grad(parse(text), loss="sum", wrt=["x"])
    np.testing.assert_allclose(gt.run(training, {"x": x}).gradients["x"], expected, rtol=1e-6)
    if "rank 2" not in form:  # onnxruntime takes images only
        theirs = stock(training.model, x=x)[training.gradients["x"]]
        np.testing.assert_allclose(theirs, expected, rtol=1e-4, atol=1e-5)


def test_a_deformable_convolution_of_open_images():
    text = """g (float[n, 2, h, w] x, float[3, 2, 2, 2] k, float[n, 8, p, q] o)
            => (float[n, 3, p, q] y) {
        y = DeformConv (x, k, o)
    }"""
    feeds = {"x": floats(1, 2, 4, 5), "k": floats(3, 2, 2, 2), "o": floats(1, 8, 3, 4) / 4}
    known = text.replace("n,", "1,").replace("h, w", "4, 5").replace("p, q", "3, 4")
    expected = gt.run(gt.grad(parse(known), loss="sum", wrt=list(feeds)), feeds).gradients

    found = gt.run(gt.grad(parse(text), loss="sum", wrt=list(feeds)), feeds).gradients
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            """g (float[b, h, s, d] q, float[b, g, t, d] k, float[b, g, t, d] v)
                    => (float[b, h, s, d] y) {
                y = Attention (q, k, v)
            }""",
            "number of heads is unknown",
        ),
        (
            """g (float[a, b] q, int64[n, r] i) => (float[n] y) {
                y = GatherND (q, i)
            }""",
            "values of unknown type or shape|last size of its indices is unknown",
        ),
    ],
)
def test_what_decides_the_form_of_a_gradient_is_asked_for(text, why):
    header = '<ir_version: 10, opset_import: ["" : 23]>'
    import onnx_ir as ir

    from gradtool import shapes
    from gradtool.shapes.inference import register_shapes

    register_shapes()
    model = ir.from_onnx_text(f"{header} {text}")
    shapes.infer(model)

    with pytest.raises(NotDifferentiable, match=why):
        gt.grad(model, head_grads=True, wrt=["q"])

from __future__ import annotations

import pytest
from graphs import parse

import gradtool as gt
from gradtool.passes.provenance import FOLDED, KIND


def one(shape, body):
    kind = f"float[{shape}]" if shape else "float"
    return f"g (float[2, 3, 4] x, float[4, 3] w, float[1, 3, 1] k, {kind} v) => (y) {{ {body} }}"


@pytest.mark.parametrize(
    ("shape", "body", "trained"),
    [
        ("1", "h = MatMul (x, w) y = Add (h, v)", True),
        ("1", "h = MatMul (x, w) y = Add (v, h)", True),
        ("1", "h = MatMul (x, w) i = Identity (h) y = Add (i, v)", True),
        ("1", "y = Conv (x, k, v)", True),
        ("1", "y = PRelu (x, v)", True),
        ("1, 1, 1", "h = LayerNormalization (x, u) y = Mul (h, v)", True),
        ("1, 1, 1", "h = LayerNormalization (x, u) m = Mul (h, u) y = Add (m, v)", True),
        ("1, 1, 1", "h = Conv (x, k) y = Conv (h, v)", True),
        ("1", "h = MatMul (x, w) y = Mul (h, v)", False),
        ("1", "y = Mul (x, v)", False),
        ("1", "y = Pow (x, v)", False),
        ("1", "y = Add (x, v)", False),
        ("1", "h = MatMul (x, w) a = Add (h, h) y = Add (a, v)", False),
        ("", "h = MatMul (x, w) y = Add (h, v)", False),
        ("2, 3, 4", "y = Mul (x, v)", True),
    ],
)
def test_one_element_is_a_parameter_where_a_layer_has_one(shape, body, trained):
    text = one(shape, body).replace("float[4, 3] w", "float[4, 3] w, float[4] u")
    training = gt.grad(parse(text, "w k v u"), loss="sum:y", input_grad=["x"])

    assert ("v" in training.gradients) is trained
    assert any("scalar initializers are not trained; --wrt NAME trains them: v" in w
               for w in training.warnings) is not trained  # fmt: skip


def test_what_is_asked_for_is_trained():
    training = gt.grad(parse(one("1", "y = Mul (x, v)"), "w k v"), loss="sum:y", wrt=["v"])

    assert list(training.gradients) == ["v"]


def test_both_kinds_are_named():
    text = """g (float[2, 4] x, float[4, 3] w, float[1] bias, float[1] scale) => (y) {
        h = MatMul (x, w) b = Add (h, bias) y = Mul (b, scale)
    }"""
    training = gt.grad(parse(text, "w bias scale"), loss="sum:y")

    assert training.warnings == (
        (
            "scalar initializers are not trained; --wrt NAME trains them: scale; "
            "trained, as parts of layers: bias"
        ),
    )


def marked(key, text, shape="1"):
    model = parse(one(shape, "h = MatMul (x, w) y = Mul (h, v)"), "w v")
    model.graph.initializers["v"].metadata_props[key] = text
    return gt.grad(model, loss="sum:y")


@pytest.mark.parametrize("shape", ["", "1", "3"])
@pytest.mark.parametrize(
    ("kind", "trained"), [("PARAMETER", True), ("BUFFER", False), ("CONSTANT_TENSOR", False)]
)
def test_what_the_exporter_says_decides(shape, kind, trained):
    training = marked(KIND, kind, shape)

    assert ("v" in training.gradients) is trained
    assert bool(training.warnings) is not trained


@pytest.mark.parametrize(
    ("origins", "trained"),
    [
        ("['val_1', 'getitem', 'h']", False),
        ("['layer.weight', 'val_1']", True),
        ("['position']", True),
        ("not a list", True),
    ],
)
def test_what_is_folded_from_temporary_values_alone_is_constant(origins, trained):
    assert ("v" in marked(FOLDED, origins, "3").gradients) is trained

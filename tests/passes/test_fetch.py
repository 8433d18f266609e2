from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from graphs import floats, parse

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.passes.fetch import fetch, has_values

MODEL = """g (float[N, 4] x, float[4] w, float[4] v) => (y, z) {
    h = Mul (x, w) e = Exp (h) y = Neg (e) z = Mul (x, v)
}"""


@pytest.fixture
def training():
    return gt.grad(parse(MODEL, "w v"), loss="mse:y", wrt=["w"])


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


@pytest.mark.parametrize(
    ("patterns", "outputs", "inputs"),
    [
        (["h"], ["h"], ["x"]),
        (["e", "h"], ["e", "h"], ["x"]),
        (["[he]"], ["h", "e"], ["x"]),
        (["z"], ["z"], ["x"]),
        (["loss"], ["loss"], ["x", "labels"]),
        (["w_grad"], ["w_grad"], ["x", "labels"]),
        (["*_grad", "loss"], ["w_grad", "loss"], ["x", "labels"]),
    ],
)
def test_the_values_that_match_are_the_outputs(training, patterns, outputs, inputs):
    model = fetch(training.model, patterns)

    assert [v.name for v in model.graph.outputs] == outputs
    assert [v.name for v in model.graph.inputs] == inputs


def test_what_they_do_not_need_is_not_there(training):
    assert operators(fetch(training.model, ["e"])) == ["Mul", "Exp"]
    assert "v" not in fetch(training.model, ["e"]).graph.initializers


def test_values_keep_their_bits(training):
    x, labels = floats(3, 4), floats(3, 4, seed=1)
    whole = gt.run(training, {"x": x, "labels": labels})
    some = gt.run(training, {"x": x, "labels": labels}, fetch=["w_grad", "loss"])

    np.testing.assert_array_equal(some.gradients["w"], whole.gradients["w"])
    assert some.loss == whole.loss
    assert set(some.outputs) == {"loss"}


def test_forward_values_need_no_labels(training):
    x = floats(3, 4)
    result = gt.run(training, {"x": x}, fetch=["h"])

    np.testing.assert_array_equal(
        result.outputs["h"], x * training.model.graph.initializers["w"].const_value.numpy()
    )
    assert (result.loss, dict(result.gradients)) == (None, {})


def test_a_weight_and_an_input_can_be_fetched_by_name(training):
    x = floats(3, 4)
    result = gt.run(training, {"x": x}, fetch=["x", "w"])

    np.testing.assert_array_equal(result.outputs["x:value"], x)
    assert set(result.outputs) == {"x:value", "w:value"}


def test_an_exact_name_wins_over_a_glob():
    model = parse("g (float[3] x) => (a) { a = Exp (x) b = Neg (x) }")
    first, second = model.graph
    first.outputs[0].name, second.outputs[0].name = "v[0]", "v0"

    assert [v.name for v in fetch(model, ["v[0]"]).graph.outputs] == ["v[0]"]


def test_a_pattern_that_matches_nothing_is_an_error(training):
    with pytest.raises(UsageError, match=r"--fetch w_gard: no such value; did you mean 'w_grad'\?"):
        fetch(training.model, ["w_gard"])
    with pytest.raises(UsageError, match=r"--fetch q\*: no such value \(there are x, "):
        fetch(training.model, ["q*"])


def test_a_forward_model_has_no_gradients():
    model = parse(MODEL, "w v")

    assert has_values(model, ["h", "y"])
    assert not has_values(model, ["h", "w_grad"])


def test_the_model_given_is_left_as_it_is(training):
    before = ir.to_proto(training.model).SerializeToString(deterministic=True)
    fetch(training.model, ["h"])

    assert ir.to_proto(training.model).SerializeToString(deterministic=True) == before

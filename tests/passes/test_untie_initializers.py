from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from graphs import floats, parse

import gradtool as gt
from gradtool.passes.provenance import SCOPES

NORMS = """g (float[4, 3] x, float[3] one, float[3] zero) => (y) {
    [first] a = BatchNormalization (x, one, zero, zero, one)
    b = Tanh (a)
    [second] y = BatchNormalization (b, one, zero, zero, one)
}"""


def norms(text=NORMS):
    model = parse(text, "one zero")
    for name, number in (("one", 1), ("zero", 0)):
        array = np.full(3, number, np.float32)
        model.graph.initializers[name].const_value = ir.Tensor(array, name=name)
    return model


@pytest.mark.parametrize("train_mode", [False, True])
def test_no_gradient_flows_into_statistics_that_were_merged_with_gains(train_mode):
    """The gain's gradient is that of the gains alone."""
    separate = """g (float[4, 3] x, float[3] one, float[3] zero) => (y)
        <float[3] m = {0, 0, 0}, float[3] v = {1, 1, 1}, float[3] n = {0, 0, 0},
         float[3] u = {1, 1, 1}> {
        [first] a = BatchNormalization (x, one, zero, m, v)
        b = Tanh (a)
        [second] y = BatchNormalization (b, one, zero, n, u)
    }"""
    feeds = {"x": floats(4, 3), "labels": floats(4, 3, seed=1)}
    options = {"loss": "mse:y", "train_mode": train_mode, "wrt": ["one", "zero"]}
    merged = gt.run(gt.grad(norms(), **options), feeds).gradients
    right = gt.run(gt.grad(norms(separate), **options), feeds).gradients

    for name, gradient in right.items():
        np.testing.assert_array_equal(merged[name], gradient)


def test_every_statistic_that_moves_has_a_tensor_of_its_own():
    import json

    training = gt.grad(norms(), loss="sum:y", train_mode=True)

    assert list(json.loads(training.model.metadata_props["gradtool.state"])) == [
        "first.running_mean", "first.running_var", "second.running_mean", "second.running_var",
    ]  # fmt: skip


def test_a_copy_that_stood_for_a_statistic_gives_it_its_name():
    text = """g (float[4, 3] x, float[3] one, float[3] zero) => (y) {
        var = Identity (one) mean = Identity (zero)
        y = BatchNormalization (x, one, zero, mean, var)
    }"""
    training = gt.grad(norms(text), loss="sum:y")

    assert {"mean", "var"} <= set(training.model.graph.initializers)
    assert not [n for n in training.model.graph if n.op_type == "Identity"]


def test_copies_name_what_was_merged():
    text = """g (float[4, 3] x, float[3] one, float[3] zero) => (y) {
        two = Identity (one)
        a = LayerNormalization (x, one) y = LayerNormalization (a, two, zero)
    }"""
    (warning,) = gt.grad(norms(text), loss="sum:y").warnings

    assert warning.startswith("1 parameter read by several layers: one (one, two); ")
    assert "optimize=False" in warning


FIVE = """g (float[4, 3] x, float[3] one, float[3] zero) => (y) {
    [n1] a = LayerNormalization (x, one, zero) [n2] y = LayerNormalization (a, one, zero)
}"""


@pytest.mark.parametrize(
    ("modules", "said"),
    [(("l.0", "l.1"), "one (l.0, l.1), zero (l.0, l.1)"), (("l", "l"), "")],
)
def test_layers_of_several_modules_name_what_they_share(modules, said):
    model = norms(FIVE)
    for node, module in zip(model.graph, modules, strict=True):
        node.metadata_props[SCOPES] = f"['', '{module}', 'layer_norm']"
    warnings = gt.grad(model, loss="sum:y").warnings

    assert [said in w for w in warnings] == ([True] if said else [])


def test_without_modules_only_untrained_numbers_count():
    assert len(gt.grad(norms(FIVE), loss="sum:y").warnings) == 1
    assert gt.grad(parse(FIVE, "one zero"), loss="sum:y").warnings == ()


def test_numbers_that_are_not_there_say_nothing(tmp_path):
    """Large models are differentiated without their weights."""
    wide = FIVE.replace("3]", "512]")
    model = parse(wide, "one zero")
    gt.save(model, tmp_path / "model.onnx", external_data="always")
    for data in tmp_path.glob("*.data"):
        data.unlink()
    loaded = gt.load(tmp_path / "model.onnx")

    assert loaded.graph.initializers["one"].const_value.absent
    assert gt.grad(loaded, loss="sum:y").warnings == ()


def test_tied_weights_of_different_operators_are_no_merge():
    text = """g (int64[4] i, float[5, 3] w) => (y) {
        e = Gather (w, i) t = Transpose (w) y = MatMul (e, t)
    }"""

    assert gt.grad(parse(text, "w"), loss="ce:y").warnings == ()


CONV = """g (float[2, 2, 5, 5] x, float[3, 2, 1, 1] w) => (y) {
    [conv] h = Conv (x, w) y = Dropout (h)
}"""


def test_a_folded_norm_is_named_with_its_remedy():
    model = parse(CONV, "w")
    model.graph.node("conv").metadata_props[SCOPES] = "['', '1', '_native_batch_norm']"
    (warning,) = gt.grad(model, loss="sum:y").warnings

    assert warning.startswith("BatchNormalization was folded into conv by the exporter")
    assert "optimize=False" in warning


def test_a_name_of_torchscript_tells_of_a_folded_norm():
    model = parse(CONV, "w")
    model.graph.initializers["w"].name = "onnx::Conv_30"
    (warning,) = gt.grad(model, loss="sum:y").warnings

    assert "folded into conv" in warning


def test_train_mode_tells_of_a_fold_also_where_there_is_dropout():
    warnings = gt.grad(parse(CONV, "w"), loss="sum:y", train_mode=True).warnings

    assert any("has Dropout and no BatchNormalization" in w and "optimize=False" in w
               for w in warnings)  # fmt: skip

"""Training forms asked for: batch statistics, dropping, and what is said of random numbers."""

from __future__ import annotations

import json

import numpy as np
import onnx_ir as ir
import pytest
from graphs import floats, parse, stock

import gradtool as gt
from gradtool.errors import UsageError

NORM = """g (float[N, 3, 2] x, float[3] s, float[3] b, float[3] m, float[3] v) => (y) {
    [norm] h = BatchNormalization <momentum = 0.8> (x, s, b, m, v) y = Tanh (h)
}"""
DROPOUT = "g (float[N, 40] x, float[40] w) => (y) { h = Mul (x, w) y = Dropout (h RATIO) }"


def dropout(given=", r", **options):
    text = DROPOUT.replace(" RATIO", given)
    if given:
        text = text.replace("=> (y) {", "=> (y) <float r = {0.25}, bool t = {0}> {", 1)
    return gt.grad(parse(text, "w"), loss="sum:y", train_mode=True, **options)


def test_norms_go_by_the_batch():
    model = parse(NORM, "s b m v")
    training = gt.grad(model, loss="sum:y", train_mode=True)
    x = floats(5, 3, 2)
    result = gt.run(training, {"x": x})
    weights = {n: v.const_value.numpy() for n, v in model.graph.initializers.items()}
    mean, var = x.mean((0, 2)), x.var((0, 2))
    n = (x - mean[:, None]) / np.sqrt(var + 1e-5)[:, None]
    y = np.tanh(n * weights["s"][:, None] + weights["b"][:, None])

    np.testing.assert_allclose(result.outputs["y"], y, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.gradients["b"], (1 - y * y).sum((0, 2)), rtol=1e-4, atol=1e-5)
    state = json.loads(training.model.metadata_props["gradtool.state"])
    assert state == {"m": "m_next", "v": "v_next"}
    np.testing.assert_allclose(
        result.outputs["m_next"], 0.8 * weights["m"] + 0.2 * mean, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        result.outputs["v_next"], 0.8 * weights["v"] + 0.2 * var, rtol=1e-4, atol=1e-6
    )


def test_stock_onnxruntime_trains_the_norms_too():
    pytest.importorskip("onnxruntime")
    training = gt.grad(parse(NORM, "s b m v"), loss="sum:y", train_mode=True)
    x = floats(5, 3, 2)
    ours, theirs = gt.run(training, {"x": x}), stock(training.model, x=x)

    for value, output in training.gradients.items():
        np.testing.assert_allclose(ours.gradients[value], theirs[output], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.outputs["v_next"], theirs["v_next"], rtol=1e-5)


def test_without_it_the_file_decides_and_it_is_said():
    training = gt.grad(parse(NORM, "s b m v"), loss="sum:y")

    assert training.warnings == (
        "1 BatchNormalization in inference mode: running statistics are constants (--train-mode)",
    )
    assert "gradtool.state" not in training.model.metadata_props


@pytest.mark.parametrize(("given", "ratio"), [("", 0.5), (", r", 0.25), (", r, t", 0.25)])
def test_dropout_drops_with_the_ratio_of_the_file(given, ratio):
    training = dropout(given)
    x = np.ones((500, 40), np.float32)
    result = gt.run(training, {"x": x})
    weights = training.model.graph.initializers["w"].const_value.numpy()
    kept = result.outputs["y"] / weights

    np.testing.assert_allclose(np.unique(np.round(kept, 4)), [0, 1 / (1 - ratio)], rtol=1e-4)
    assert (kept == 0).mean() == pytest.approx(ratio, abs=0.02)
    np.testing.assert_allclose(result.gradients["w"], kept.sum(0), rtol=1e-4)


def test_what_is_random_is_said():
    text = DROPOUT.replace(" RATIO", ", r, t").replace(
        "=> (y) {", "=> (y) <float r = {0.25}, bool t = {1}> {", 1
    )

    assert gt.grad(parse(text, "w"), loss="sum:y").warnings == (
        "drawn at random, every run differs (fix it by the attribute seed): 1 Dropout",
    )
    assert dropout().warnings == ()


@pytest.mark.parametrize(
    ("body", "warned"),
    [
        ("r = RandomNormalLike (x) y = Mul (x, r)", True),
        ("r = RandomNormalLike <seed = 1.0> (x) y = Mul (x, r)", False),
        ("y = Dropout (x)", False),
        ("r = RandomNormalLike (x) z = Exp (r) y = Neg (x)", False),
    ],
)
def test_only_what_draws_anew_and_is_needed_counts_as_random(body, warned):
    training = gt.grad(parse(f"g (float[3] x) => (y) {{ {body} }}"), loss="sum:y", wrt=["x"])

    assert any("drawn at random" in w for w in training.warnings) == warned


def test_a_model_without_either_is_told_so():
    training = gt.grad(
        parse("g (float[3] x) => (y) { y = Exp (x) }"), loss="sum:y", wrt=["x"], train_mode=True
    )

    (warning,) = training.warnings
    assert warning.startswith("--train-mode: the model has no BatchNormalization and no Dropout (")


def test_a_model_that_trains_already_stays_as_it_is():
    text = NORM.replace("momentum", "training_mode = 1, momentum").replace(
        "h = Batch", "h, m2, v2 = Batch"
    )
    one = gt.grad(parse(text, "s b m v"), loss="sum:y")
    two = gt.grad(parse(text, "s b m v"), loss="sum:y", train_mode=True)

    assert [n.name for n in one.model.graph] == [n.name for n in two.model.graph]
    assert two.warnings == ()


def test_the_model_given_is_left_as_it_is():
    model = parse(NORM, "s b m v")
    gt.grad(model, loss="sum:y", train_mode=True)
    node = model.graph.node("norm")

    assert len(node.outputs) == 1
    assert "training_mode" not in node.attributes


# ------------------------------------------------------------------------- norms by name

BLOCK = """h_{n} = MatMul ({x}, {n}_w)
    [{n}_norm] n_{n} = BatchNormalization {form} (h_{n}, {n}_s, {n}_b, {n}_m, {n}_v)"""
TRAINS = "<training_mode = 1>"


def norms(names, form=""):
    """Blocks of a product and a norm, one behind the other, then a Dropout and a head."""
    x, body, inputs, weights = "x", [], ["float[N, 3] x"], []
    for n in names:
        body.append(BLOCK.format(n=n, x=x, form=form))
        if form:
            body[-1] = body[-1].replace(f"n_{n} =", f"n_{n}, mean_{n}, var_{n} =")
        inputs += [f"float[3, 3] {n}_w", *(f"float[3] {n}_{p}" for p in "sbmv")]
        weights += [f"{n}_{p}" for p in "wsbmv"]
        x = f"n_{n}"
    text = f"g ({', '.join(inputs)}) => (y) {{ {' '.join(body)} d = Dropout ({x}) y = Relu (d) }}"
    model = parse(text, " ".join(weights))
    for name, value in model.graph.initializers.items():
        if name.endswith("_v"):
            value.const_value = ir.Tensor(np.full(3, 2, np.float32), name=name)
    return model


def training_norms(training):
    """The names of the norms that go by the batch."""
    state = json.loads(training.model.metadata_props.get("gradtool.state", "{}"))
    return [n[:-2] for n in state if n.endswith("_m")]


NAMES = ["stem", "block1", "block2", "head"]


@pytest.mark.parametrize("form", ["", TRAINS])
@pytest.mark.parametrize(
    ("options", "trains"),
    [
        ({"train_mode": True}, NAMES),
        ({"train_mode": True, "wrt": ["head_*"]}, ["head"]),
        ({"train_mode": True, "wrt": ["block*", "head_w"]}, ["block1", "block2"]),
        ({"train_mode": True, "wrt": ["*_b"]}, NAMES),
        ({"train_mode": True, "wrt": ["head_w"]}, []),
        ({"train_mode": True, "no_grad": ["stem_*"]}, NAMES[1:]),
        ({"train_mode": True, "no_grad": ["stem_s"]}, NAMES),
        ({"train_mode": True, "no_grad": ["n_block1"]}, ["block2", "head"]),
        ({"train_mode": True, "no_grad": ["block1_norm:0"]}, ["block2", "head"]),
        ({"train_mode": True, "no_grad": ["head_*"], "wrt": ["block2_*", "head_*"]}, ["block2"]),
        ({"train_mode": True, "lora": 2}, NAMES),
        ({"train_mode": True, "lora": 2, "no_grad": ["stem_*"]}, NAMES[1:]),
        ({"train_mode": "head_*"}, ["head"]),
        ({"train_mode": ["head_norm", "stem_m"]}, ["stem", "head"]),
        ({"train_mode": "*", "wrt": ["head_*"]}, NAMES),
        ({"train_mode": "block?_s", "no_grad": ["block1_*"]}, ["block1", "block2"]),
    ],
)
def test_a_norm_of_frozen_parameters_infers_unless_it_is_named(options, trains, form):
    model = norms(NAMES, form)
    training = gt.grad(model, loss="sum:y", optimizer="sgd", **options)

    assert training_norms(training) == trains
    frozen = [w for w in training.warnings if "freezes its parameters" in w]
    count = len(NAMES) - len(trains)
    assert len(frozen) == (count > 0 and isinstance(options["train_mode"], bool))
    assert all(w.startswith(f"{count} BatchNormalization in inference form, --") for w in frozen)
    assert any(n.op_type == "DropoutMask" for n in training.model.graph)


def test_without_the_flag_the_form_of_the_file_is_frozen_too():
    training = gt.grad(norms(NAMES, TRAINS), loss="sum:y", optimizer="sgd", wrt=["head_*"])

    assert training_norms(training) == ["head"]


def test_a_frozen_norm_computes_by_its_running_statistics():
    """Its results, and the gradient behind it, are those of the file in inference form."""
    model = norms(["stem", "head"])
    feeds = {"x": floats(5, 3), "dropout_seed": 3}
    training = gt.grad(model, loss="sum:y", train_mode="head_*", input_grad=["x"])
    found = gt.run(training, feeds)
    w = {n: v.const_value.numpy().astype(np.float64) for n, v in model.graph.initializers.items()}
    h = floats(5, 3).astype(np.float64) @ w["stem_w"]
    n = (h - w["stem_m"]) / np.sqrt(w["stem_v"] + 1e-5) * w["stem_s"] + w["stem_b"]
    mean = (n @ w["head_w"]).mean(0)

    np.testing.assert_allclose(
        found.outputs["head_m_next"], 0.9 * w["head_m"] + 0.1 * mean, rtol=1e-4, atol=1e-6
    )
    assert "stem_m_next" not in found.outputs
    gt.verify(training, feeds)


def test_stock_onnxruntime_runs_a_step_of_norms_of_both_forms():
    pytest.importorskip("onnxruntime")
    training = gt.grad(norms(NAMES), loss="sum:y", train_mode=True, optimizer="sgd",
                       wrt=["block2_*", "head_*"])  # fmt: skip
    draws = {f"dropout_{what}": np.array(0) for what in ("seed", "step", "part")}
    feeds = {"x": floats(5, 3), "lr": np.array(0.1, np.float32), **draws}
    ours, theirs = gt.run(training, feeds), stock(training.model, **feeds)

    assert training_norms(training) == ["block2", "head"]
    for name, value in theirs.items():
        np.testing.assert_allclose(ours.outputs[name], value, rtol=1e-3, atol=1e-5)


def test_statistics_that_a_file_returns_stay_as_they_are():
    text = NORM.replace("momentum", "training_mode = 1, momentum")
    text = text.replace("h = Batch", "h, m2, v2 = Batch").replace("=> (y)", "=> (y, m2, v2)")
    training = gt.grad(parse(text, "s b m v"), loss="sum:y", input_grad=["x"], no_grad=["s", "b"])
    result = gt.run(training, {"x": floats(5, 3, 2)})

    for name, kept in (("m2", "m"), ("v2", "v")):
        held = training.model.graph.initializers[kept].const_value.numpy()
        np.testing.assert_array_equal(result.outputs[name], held)


@pytest.mark.parametrize(
    ("glob", "said"),
    [
        ("heda_norm", "no such BatchNormalization; did you mean 'head_norm'?"),
        ("zzz*", "no such BatchNormalization; there are stem_norm, stem_s, stem_b, stem_m, stem_v"),
        ("head_w", "no such BatchNormalization; did you mean 'head_v'?"),
    ],
)
def test_a_glob_of_no_norm_is_refused(glob, said):
    with pytest.raises(UsageError) as error:
        gt.grad(norms(NAMES), loss="sum:y", train_mode=["stem_*", glob])

    assert f"--train-mode={glob}: {said}" in str(error.value)

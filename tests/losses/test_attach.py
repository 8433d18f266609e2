from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from graphs import floats, parse, stock
from loss_formulas import THEIRS

import gradtool as gt
from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.losses.attach import attach
from gradtool.losses.kinds import kinds

LABELS = np.array([2, 0, 3], dtype=np.int64)
SCORES = floats(3, 4)
TARGET = floats(3, 4, seed=1)
PROBABLE = np.random.default_rng(2).uniform(0.1, 0.9, (3, 4)).astype(np.float32)


def attached(text, loss="auto", labels="labels"):
    model = parse(text)
    return attach(Builder(model, stage="forward"), loss, labels), model


# ------------------------------------------------------------------------------- values


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def picked(x):
    return x[np.arange(3), LABELS]


def huber(e):
    return np.where(np.abs(e) < 1, e * e / 2, np.abs(e) - 0.5)


ONE_HOT = np.eye(4)[LABELS]
ERROR = SCORES - TARGET
SHARES = softmax(TARGET).astype(np.float32)
SHARES[0] = [0, 1, 0, 0]
VALUES = {
    "smooth-l1": (TARGET, huber(ERROR).mean(), np.clip(ERROR, -1, 1) / 12),
    "huber": (TARGET, huber(ERROR).mean(), np.clip(ERROR, -1, 1) / 12),
    "kl": (
        SHARES,
        (SHARES * (np.log(np.where(SHARES > 0, SHARES, 1)) - SCORES)).sum() / 3,
        -SHARES / 3,
    ),
    "bce": (
        ONE_HOT.astype(np.float32),
        -np.log(np.abs(ONE_HOT - 1 + PROBABLE)).mean(),
        (PROBABLE - ONE_HOT) / (PROBABLE * (1 - PROBABLE)) / 12,
    ),
    "ce": (LABELS, -np.log(picked(softmax(SCORES))).mean(), (softmax(SCORES) - ONE_HOT) / 3),
    "nll": (LABELS, -picked(SCORES).mean(), -ONE_HOT / 3),
    "mse": (TARGET, ((SCORES - TARGET) ** 2).mean(), 2 * (SCORES - TARGET) / 12),
    "l1": (TARGET, np.abs(SCORES - TARGET).mean(), np.sign(SCORES - TARGET) / 12),
    "bce-logits": (
        (TARGET > 0).astype(np.float32),
        (np.log1p(np.exp(SCORES)) - SCORES * (TARGET > 0)).mean(),
        (1 / (1 + np.exp(-SCORES)) - (TARGET > 0)) / 12,
    ),
    "mean": (None, SCORES.mean(), np.full((3, 4), 1 / 12)),
    "sum": (None, SCORES.sum(), np.ones((3, 4))),
}


def given(kind):
    return PROBABLE if kind == "bce" else SCORES


def test_every_kind_of_loss_has_an_expected_value():
    assert {*VALUES, *THEIRS} == {*kinds()}


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", VALUES)
def test_a_loss_has_the_value_and_the_gradient_that_its_formula_says(kind):
    target, value, gradient = VALUES[kind]
    training = gt.grad(parse("g (float[N, 4] x) => (y) { y = Identity (x) }"), loss=kind, wrt=["x"])
    feeds = {"x": given(kind)} | ({} if target is None else {"labels": target})
    result = gt.run(training, feeds)
    theirs = stock(training.model, **feeds)

    assert result.loss == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(result.gradients["x"], gradient, rtol=1e-4, atol=1e-6)
    assert theirs["loss"] == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(theirs["x_grad"], gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.extra
@pytest.mark.parametrize("kind", VALUES)
def test_a_loss_equals_that_of_pytorch(kind):
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    theirs = {
        "ce": functional.cross_entropy,
        "nll": functional.nll_loss,
        "mse": functional.mse_loss,
        "l1": functional.l1_loss,
        "bce-logits": functional.binary_cross_entropy_with_logits,
        "smooth-l1": functional.smooth_l1_loss,
        "huber": functional.huber_loss,
        "bce": functional.binary_cross_entropy,
        "kl": lambda y, t: functional.kl_div(y, t, reduction="batchmean"),
        "mean": lambda y, _: y.mean(),
        "sum": lambda y, _: y.sum(),
    }
    target = VALUES[kind][0]
    scores = torch.tensor(given(kind), requires_grad=True)
    loss = theirs[kind](scores, None if target is None else torch.tensor(target))
    loss.backward()
    training = gt.grad(parse("g (float[N, 4] x) => (y) { y = Identity (x) }"), loss=kind, wrt=["x"])
    feeds = {"x": given(kind)} | ({} if target is None else {"labels": target})
    result = gt.run(training, feeds)

    assert result.loss == pytest.approx(loss.item(), rel=1e-5)
    np.testing.assert_allclose(result.gradients["x"], scores.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_large_logits_give_finite_losses():
    model = parse("g (float[2, 3] x) => (y) { y = Identity (x) }")
    x = np.array([[1000, -1000, 0], [-1000, 1000, 0]], dtype=np.float32)
    for kind, labels in (("ce", np.array([1, 1])), ("bce-logits", np.ones((2, 3), np.float32))):
        result = gt.run(gt.grad(model, loss=kind, wrt=["x"]), {"x": x, "labels": labels})

        assert np.isfinite(result.loss)
        assert np.isfinite(result.gradients["x"]).all()


@pytest.mark.extra
def test_probabilities_of_zero_and_one_give_what_pytorch_gives():
    torch = pytest.importorskip("torch")
    model = parse("g (float[6] x) => (y) { y = Identity (x) }")
    x = np.array([0, 0, 1, 1, 1e-30, 0.5], np.float32)
    t = np.array([0, 1, 0, 1, 1, 0.5], np.float32)
    probable = torch.tensor(x, requires_grad=True)
    loss = torch.nn.functional.binary_cross_entropy(probable, torch.tensor(t))
    loss.backward()
    result = gt.run(gt.grad(model, loss="bce", wrt=["x"]), {"x": x, "labels": t})

    assert result.loss == pytest.approx(loss.item(), rel=1e-6)
    np.testing.assert_allclose(result.gradients["x"], probable.grad.numpy(), rtol=1e-6)


def test_an_error_of_exactly_one_has_the_slope_of_both_sides():
    model = parse("g (float[5] x) => (y) { y = Identity (x) }")
    x = np.array([-2, -1, 0, 1, 2], np.float32)
    training = gt.grad(model, loss="huber", wrt=["x"])
    result = gt.run(training, {"x": x, "labels": np.zeros(5, np.float32)})

    np.testing.assert_array_equal(result.gradients["x"] * 5, np.float32([-1, -1, 0, 1, 1]))


@pytest.mark.parametrize("shape", ["2, 3, 4", "4", "B, T, 4"])
def test_classes_lie_on_the_last_axis_whatever_the_rank(shape):
    model = parse(f"g (float[{shape}] x) => (y) {{ y = Identity (x) }}")
    training = gt.grad(model, loss="ce", wrt=["x"])
    rank = shape.count(",")
    x = floats(*(2, 3, 4)[2 - rank :])
    labels = np.random.default_rng(0).integers(0, 4, x.shape[:-1])
    expected = -np.log(np.take_along_axis(softmax(x), labels[..., None], -1)).mean()

    assert gt.run(training, {"x": x, "labels": labels}).loss == pytest.approx(expected, rel=1e-5)


# -------------------------------------------------------------------------------- auto

LINEAR = "g (float[N, 3] x, float[3, 4] w, float[4] b) => (y) {{ h = MatMul (x, w) {} }}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            "g (float[3] x) => (y, z) { y = Exp (x) z = ReduceSum <keepdims = 0> (y) }",
            "the scalar output 'z' (auto)",
            id="a scalar output",
        ),
        pytest.param(
            "g (float[1, 3] x) => (z) { z = ReduceMean (x) }",
            "the scalar output 'z' (auto)",
            id="one element of any rank",
        ),
        pytest.param(
            LINEAR.format("y = Add (h, b)"),
            "softmax cross-entropy (auto, output 'y', labels: labels int64[N])",
            id="a linear layer",
        ),
        pytest.param(
            LINEAR.format("s = Add (h, b) y = Softmax (s)"),
            "softmax cross-entropy (auto, output 'y', its Softmax left out, "
            "labels: labels int64[N])",
            id="a linear layer and a softmax",
        ),
        pytest.param(
            LINEAR.format("y = Softmax <axis = 0> (h)"),
            "the mean of output 'y' (auto)",
            id="a softmax over another axis",
        ),
        pytest.param(
            LINEAR.format("y = Relu (h)"), "the mean of output 'y' (auto)", id="something else"
        ),
        pytest.param(
            "g (float[3] x) => (y) { y = Exp (x) }", "the mean of output 'y' (auto)", id="a vector"
        ),
        pytest.param(
            "g (float[2, 3] x) => (i, y) { y = Exp (x) i = ArgMax (y) }",
            "the mean of output 'y' (auto)",
            id="integers do not count",
        ),
    ],
)
def test_auto_chooses(text, said):
    chosen, _ = attached(text)

    assert chosen.said == said
    assert chosen.loud == said.startswith("the mean")


def test_a_stripped_softmax_is_not_taken_twice():
    training = gt.grad(parse(LINEAR.format("y = Softmax (h)")), wrt=["x"])
    loss = next(n for n in training.model.graph if n.op_type == "SoftmaxCrossEntropyLoss")

    assert loss.inputs[0].name == "h"
    assert "y" in {v.name for v in training.model.graph.outputs}


def test_a_mean_that_nobody_asked_for_is_a_warning():
    training = gt.grad(parse("g (float[3] x) => (y) { y = Exp (x) }"), wrt=["x"])

    (said,) = training.warnings
    assert "mean of output 'y'" in said
    assert "--loss" in said


def test_auto_needs_a_float_output():
    with pytest.raises(UsageError, match="no output is a float: name a loss with --loss"):
        attached("g (float[3] x) => (i) { i = ArgMax (x) }")


# ------------------------------------------------------------------------------ by name


def test_an_interior_value_may_be_the_loss():
    model = parse("g (float[3] x) => (y) { s = ReduceSum <keepdims = 0> (x) y = Exp (x) }")
    training = gt.grad(model, loss="s", wrt=["x"])

    assert training.loss == "s"
    assert [v.name for v in training.model.graph.outputs] == ["y", "s", "x_grad"]


def test_the_name_of_a_value_comes_before_a_kind():
    chosen, _ = attached("g (float[3] x) => (mean) { mean = ReduceSum <keepdims = 0> (x) }", "mean")

    assert chosen.said == "'mean'"


@pytest.mark.parametrize("loss", ["mse:z", "mse:h"])
def test_a_kind_may_name_its_output(loss):
    _, model = attached("g (float[2, 3] x) => (y, z) { y = Exp (x) h = Neg (x) z = Abs (h) }", loss)
    difference = next(n for n in model.graph if n.op_type == "Sub")

    assert difference.inputs[0].name == loss[-1]


def test_a_name_with_a_colon_can_be_given():
    model = parse("g (float[3] x) => (y) { y = Exp (x) }")
    model.graph.outputs[0].name = "y:0"
    chosen = attach(Builder(model), "mean:y:0")

    assert chosen.value.producer().inputs[0].name == "y:0"


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("y", r"--loss y: it has shape \[3\], a loss has one element; try --loss mean:y"),
        ("i", "--loss i: it is not a float"),
        ("mea", r"--loss mea: neither a value of the model nor a loss .*; did you mean 'mean'\?"),
        ("mse:z", "--loss mse:z: no such value; outputs are y, i"),
        ("cee:y", r"--loss cee:y: neither a value of the model nor a loss \(ce, mse"),
    ],
)
def test_a_loss_that_cannot_be_is_an_error(loss, message):
    with pytest.raises(UsageError, match=message):
        attached("g (float[3] x) => (y, i) { y = Exp (x) i = ArgMax <keepdims = 0> (x) }", loss)


# ------------------------------------------------------------------------------- labels


def test_labels_become_an_input():
    chosen, model = attached("g (float[B, T, 5] x) => (y) { y = Exp (x) }", "ce", "targets")
    labels = model.graph.inputs[-1]

    assert chosen.labels == (labels.name,) == ("targets",)
    assert labels.dtype == ir.DataType.INT64
    assert str(labels.shape) == "[B,T]"


def test_float_targets_have_the_shape_and_type_of_the_output():
    _, model = attached("g (double[B, 5] x) => (y) { y = Exp (x) }", "mse")
    labels = model.graph.inputs[-1]

    assert labels.dtype == ir.DataType.DOUBLE
    assert str(labels.shape) == "[B,5]"


@pytest.mark.parametrize("labels", ["int64[N] labels", "int32[N] labels", "int64[N, 1] labels"])
def test_an_input_of_that_name_is_used(labels):
    chosen, model = attached(f"g (float[N, 4] x, {labels}) => (y) {{ y = Exp (x) }}", "ce")

    assert chosen.labels == ("labels",)
    assert len(model.graph.inputs) == 2


def test_a_name_that_a_value_has_is_made_unique():
    chosen, _ = attached("g (float[N, 4] x) => (labels) { labels = Exp (x) }", "ce")

    assert chosen.labels == ("labels_1",)


@pytest.mark.parametrize(
    ("kind", "labels", "message"),
    [
        ("ce", "float[N] labels", "the model has an input labels float.*, the loss takes integers"),
        ("mse", "int64[N, 4] labels", r"labels int64\[N, 4\], the loss takes float\[N, 4\]"),
        ("mse", "float[N] labels", "choose another name"),
        ("mse", "float[N, 1] labels", "choose another name"),
    ],
)
def test_an_input_of_that_name_that_does_not_fit_is_an_error(kind, labels, message):
    with pytest.raises(UsageError, match=message):
        attached(f"g (float[N, 4] x, {labels}) => (y) {{ y = Exp (x) }}", kind)


def test_the_name_of_the_loss_is_made_unique():
    chosen, _ = attached("g (float[3] x) => (loss) { loss = Exp (x) }", "mean")

    assert chosen.value.name == "loss_1"


# ------------------------------------------------------------------------------ several

HEADS = "g (float[N, 4] x, float[4] w) => (out, aux) { out = Mul (x, w) aux = Add (x, w) }"
WEIGHTS = floats(4, seed=3)


def several(*losses, **options):
    return gt.grad(parse(HEADS), loss=losses, wrt=["w"], **options)


def test_losses_are_weighted_and_added():
    training = several("0.4*ce:aux", "ce:out")
    aux, out = np.array([1, 1, 0]), LABELS
    result = gt.run(training, {"x": SCORES, "w": WEIGHTS, "labels_aux": aux, "labels_out": out})
    parts = {
        "aux": -np.log(softmax(SCORES + WEIGHTS)[np.arange(3), aux]).mean(),
        "out": -np.log(picked(softmax(SCORES * WEIGHTS))).mean(),
    }

    assert result.loss == pytest.approx(0.4 * parts["aux"] + parts["out"], rel=1e-5)
    assert result.outputs["loss_aux"] == pytest.approx(parts["aux"], rel=1e-5)
    assert result.outputs["loss_out"] == pytest.approx(parts["out"], rel=1e-5)
    separate = [
        gt.run(gt.grad(parse(HEADS), loss=f"ce:{name}", wrt=["w"]),
               {"x": SCORES, "w": WEIGHTS, "labels": labels}).gradients["w"]
        for name, labels in (("aux", aux), ("out", out))
    ]  # fmt: skip
    np.testing.assert_allclose(
        result.gradients["w"], 0.4 * separate[0] + separate[1], rtol=1e-5, atol=1e-6
    )


def test_every_label_input_is_said():
    training = several("0.4*ce:aux", "mse:out")

    assert training.labels == ("labels_aux", "labels_out")
    assert training.loss_said == (
        "0.4·softmax cross-entropy of 'aux', labels: labels_aux int64[N] + "
        "mean squared error of 'out', labels: labels_out float[N, 4]"
    )


@pytest.mark.parametrize(
    ("losses", "labels", "names"),
    [
        (["0.5*ce:out"], "labels", ("labels",)),
        (["mse:out", "0.1*l1:out"], "labels", ("labels",)),
        (["mse:out", "0.1*mean:aux"], "labels", ("labels",)),
        (["mse:out", "l1:aux"], "t", ("t_out", "t_aux")),
        (["mse:out", "ce:out"], "labels", ("labels_out_like", "labels_out_classes")),
        (["ce:out", "0.3*ce:aux"], {"out": "t", "aux": "t"}, ("t",)),
        (["ce:out", "0.3*ce:aux"], {"out": "t"}, ("t", "labels_aux")),
        (["ce:out"], {"out": "t"}, ("t",)),
        (["ce:out"], {"": "t"}, ("t",)),
    ],
)
def test_labels_are_named_after_their_outputs(losses, labels, names):
    training = several(*losses, labels=labels)

    assert training.labels == names
    assert [v.name for v in training.model.graph.inputs] == ["x", "w", *names]


def test_a_value_may_be_one_of_several_losses():
    model = parse(
        """g (float[N, 4] x, float[4] w) => (y) {
            y = Mul (x, w) square = Mul (w, w) decay = ReduceSum <keepdims = 0> (square)
        }"""
    )
    training = gt.grad(model, loss=["mean:y", "1e-1*decay"], wrt=["w"])
    result = gt.run(training, {"x": SCORES, "w": WEIGHTS})

    assert training.loss_said == "mean of 'y' + 0.1·'decay'"
    assert result.loss == pytest.approx((SCORES * WEIGHTS).mean() + 0.1 * (WEIGHTS**2).sum())
    np.testing.assert_allclose(result.gradients["w"], SCORES.sum(0) / 12 + 0.2 * WEIGHTS, rtol=1e-5)


def test_a_name_that_looks_weighted_is_a_name():
    model = parse("g (float[3] x) => (y) { y = ReduceSum <keepdims = 0> (x) }")
    model.graph.outputs[0].name = "2*y"

    assert gt.run(gt.grad(model, loss="2*y", wrt=["x"]), {"x": floats(3)}).gradients["x"][0] == 1


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (["auto", "mse:out"], "--loss auto stands alone"),
        (["1e999*ce:out"], "the weight is not finite"),
        (["2*nothing", "mse:out"], r"--loss 2\*nothing: neither a value of the model nor a loss"),
        (["2*out", "mse:aux"], "--loss out: it has shape"),
    ],
)
def test_several_losses_that_cannot_be_are_an_error(losses, message):
    with pytest.raises(UsageError, match=message):
        several(*losses)


def test_labels_of_an_output_without_a_loss_are_an_error():
    with pytest.raises(UsageError, match="--labels y=: no loss is of that output; out, aux"):
        several("ce:out", "ce:aux", labels={"y": "t"})


# ------------------------------------------------------------------------------- custom

MODULE = """
from gradtool import loss


def spread(op, y):
    return op.ReduceMean(y * y, keepdims=0) - op.ReduceMean(y, keepdims=0)


def cubed(op, y, t):
    error = y - t
    return op.ReduceSum(error * error * error, keepdims=0)


@loss("hinge", labels="classes", said="multi-class hinge")
def hinge(op, y, labels):
    return op.ReduceMean(op.Gather(y, op.reshape(labels, [-1]), axis=1), keepdims=0)


def wrong(op, y):
    return y


number = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_losses.py").write_text(MODULE)
    yield "my_losses"
    from gradtool.losses import kinds as losses

    losses._REGISTRY.pop("hinge", None)


@pytest.mark.parametrize(
    ("function", "labels", "value"),
    [
        ("spread", None, lambda y: (y * y).mean() - y.mean()),
        ("cubed", TARGET, lambda y: ((y - TARGET) ** 3).sum()),
        ("cubed:aux", TARGET, lambda y: ((y - TARGET) ** 3).sum()),
        ("hinge", LABELS, lambda y: y[:, LABELS].mean()),
    ],
)
def test_a_function_of_a_module_is_a_loss(module, function, labels, value):
    training = several(f"{module}:{function}")
    feeds = {"x": SCORES, "w": WEIGHTS} | ({} if labels is None else {"labels": labels})
    y = SCORES + WEIGHTS if function.endswith("aux") else SCORES * WEIGHTS

    assert gt.run(training, feeds).loss == pytest.approx(value(y), rel=1e-4)


def test_a_function_itself_is_a_loss():
    training = several(lambda op, y, t: op.ReduceSum(y * t, keepdims=0))
    result = gt.run(training, {"x": SCORES, "w": WEIGHTS, "labels": TARGET})

    np.testing.assert_allclose(result.gradients["w"], (SCORES * TARGET).sum(0), rtol=1e-5)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("nowhere.to.be:found", "neither a value of the model nor a loss"),
        ("my_losses:nothing", "my_losses has no function 'nothing'"),
        ("my_losses:number", "my_losses has no function 'number'"),
        (
            "my_losses:wrong",
            r"--loss wrong: it returned out float\[N, 4\], a loss is one float \(.*my_losses.py:19",
        ),
        ("my_losses:cubed:z", "--loss my_losses:z: no such value; outputs are out, aux"),
        ("broken:f", "--loss broken:f: broken cannot be imported: ZeroDivisionError: division"),
    ],
)
@pytest.mark.usefixtures("module")
def test_a_function_that_cannot_be_a_loss_is_an_error(tmp_path, loss, message):
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(UsageError, match=message):
        several(loss)

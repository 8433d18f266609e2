from __future__ import annotations

import numpy as np
import pytest
from graphs import floats, parse, stock

import gradtool as gt
from gradtool.errors import UsageError

SHAPES = {"N, 5": (3, 5), "N, 5, 2": (3, 5, 2), "N, 5, 2, 4": (3, 5, 2, 4), "5": (5,)}


def identity(shape, inputs=""):
    return parse(f"g (float[{shape}] x{inputs}) => (y) {{ y = Identity (x) }}")


def expected(x, labels, axis):
    logs = np.moveaxis(x - np.log(np.exp(x).sum(axis=axis, keepdims=True)), axis, -1)
    return -np.take_along_axis(logs, labels[..., None], -1).mean()


@pytest.mark.sample(9)
@pytest.mark.parametrize("kind", ["ce", "nll"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("axis", [-2, -1, 0, 1, 2, 3])
def test_classes_lie_on_the_axis_that_is_asked_for(kind, shape, axis):
    sizes = SHAPES[shape]
    if not -len(sizes) <= axis < len(sizes):
        pytest.skip("there is no such axis")
    x = floats(*sizes)
    if kind == "nll":
        x = x - np.log(np.exp(x).sum(axis=axis, keepdims=True))
    rest = [n for i, n in enumerate(sizes) if i != axis % len(sizes)]
    labels = np.random.default_rng(0).integers(0, sizes[axis], rest)
    training = gt.grad(identity(shape), loss=f"{kind}:y@axis={axis}", wrt=["x"])
    result = gt.run(training, {"x": x, "labels": labels})
    theirs = stock(training.model, x=x, labels=labels)

    assert result.loss == pytest.approx(expected(x, labels, axis), rel=1e-5)
    assert theirs["loss"] == pytest.approx(result.loss, rel=1e-5)
    np.testing.assert_allclose(theirs["x_grad"], result.gradients["x"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "labels"),
    [
        ("N, 5", "[N]"),
        ("N, T, 5", "[N,T]"),
        ("N, 5, 8, 8", "[N,8,8]"),
        ("N, 5, 8, 8, 8", "[N,8,8,8]"),
    ],
)
def test_without_evidence_classes_are_last_up_to_three_axes_and_second_of_more(shape, labels):
    training = gt.grad(identity(shape), loss="ce", wrt=["x"])

    assert str(training.model.graph.inputs[-1].shape) == labels


@pytest.mark.extra
@pytest.mark.parametrize("loss", ["ce:logits", "ce"])
def test_logits_of_images_equal_those_of_pytorch(loss):
    torch = pytest.importorskip("torch")
    model = parse("g (float[2, 8, 6, 5] x) => (logits) { logits = Identity (x) }")
    x = floats(2, 8, 6, 5)
    labels = np.random.default_rng(0).integers(0, 8, (2, 6, 5))
    theirs = torch.nn.functional.cross_entropy(torch.tensor(x), torch.tensor(labels))
    result = gt.run(gt.grad(model, loss=loss, wrt=["x"]), {"x": x, "labels": labels})

    assert result.loss == pytest.approx(theirs.item(), rel=1e-5)


@pytest.mark.parametrize(("labels", "axis"), [("2, 6, 5", 1), ("2, 8, 6", 3), ("2, 9, 9", 1)])
def test_labels_of_the_model_say_which_axis_they_leave_out(labels, axis):
    model = identity("2, 8, 6, 5", f", int64[{labels}] labels")

    assert f"classes on axis {axis}" in gt.grad(model, loss="ce", wrt=["x"]).loss_said


def test_the_last_layer_says_where_the_classes_of_named_logits_are():
    line = "g (float[N, 2, 8] x, float[5, 2, 1] w) => (y) { y = Conv (x, w) }"
    last = """g (float[N, 2, 8, 8] x, float[5, 2, 1, 1] w) => (y) {
        h = Conv (x, w) y = Transpose <perm = [0, 2, 3, 1]> (h)
    }"""

    assert "classes on axis 1" in gt.grad(parse(line, "w"), loss="ce:y").loss_said
    assert "classes on axis 3" in gt.grad(parse(last, "w"), loss="nll:y").loss_said


@pytest.mark.parametrize("loss", ["ce", "nll", "ce:y", "0.5*ce:y"])
def test_one_class_has_no_cross_entropy(loss):
    with pytest.raises(
        UsageError,
        match=r"y float\[N, 1\] has one class along axis 1, whose cross-entropy is always 0; "
        r"for numbers choose --loss mse:y, for a yes or no --loss bce-logits:y",
    ):
        gt.grad(identity("N, 1"), loss=loss, wrt=["x"])


def test_one_class_of_probabilities_is_advised_by_what_they_are():
    model = parse("g (float[N, 1] x) => (y) { y = Sigmoid (x) }")

    with pytest.raises(UsageError, match="--loss bce:y"):
        gt.grad(model, loss="ce:y", wrt=["x"])


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("ce:y@axis=2", r"--loss ce:y@axis=2: 'y' has shape \[N,4\]"),
        ("ce:y@axis=one", "write @axis=N, as in @axis=-1"),
        ("ce@axis=", "write @axis=N, as in @axis=-1"),
        ("mse:y@axis=1", "mean squared error has no classes, and no axis of them"),
        ("ce:y@axes=1", "--loss ce:y@axes=1: no setting 'axes'.*did you mean 'axis'"),
    ],
)
def test_an_axis_that_cannot_be_is_an_error(loss, message):
    with pytest.raises(UsageError, match=message):
        gt.grad(identity("N, 4"), loss=loss, wrt=["x"])


def test_a_number_has_no_classes():
    with pytest.raises(UsageError, match="'y' is one number, and has no classes"):
        gt.grad(parse("g (float x) => (y) { y = Exp (x) }"), loss="ce:y", wrt=["x"])


def test_an_output_may_be_named_like_an_axis():
    model = identity("N, 4")
    model.graph.outputs[0].name = "y@axis=0"

    assert gt.grad(model, loss="ce:y@axis=0", wrt=["x"]).labels == ("labels",)


def test_a_loss_of_classes_that_is_told_no_axis_finds_them_last():
    from gradtool.losses import kinds as losses

    def first(op, y, _labels):
        assert str(y.shape) == "[N,8,8,5]"
        return op.ReduceMean(y, keepdims=0)

    model = identity("N, 5, 8, 8")
    try:
        losses.loss("first", labels="classes")(first)
        assert "classes on axis 1" in gt.grad(model, loss=first, wrt=["x"]).loss_said
    finally:
        losses._REGISTRY.pop("first")

"""A written graph refuses a negative label that stock onnxruntime counts from the last class."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from conftest import sampled
from graphs import floats, parse

import gradtool as gt

LOSSES = {"SoftmaxCrossEntropyLoss": "Identity (r)", "NegativeLogLikelihoodLoss": "LogSoftmax (r)"}
BETWEEN = {
    "nothing": ("b", "t = Identity (l)"),
    "a column": ("b, 1", "a = Constant <value_ints = [1]> () t = Squeeze (l, a)"),
    "a cast": ("b", "t = Cast <to = 7> (l)"),
}
DRAWN = list(itertools.product(LOSSES, [None, -100, -1, 2], BETWEEN, ["int64", "int32"]))


def _model(loss, ignored, between, kind):
    sizes, nodes = BETWEEN[between]
    more = "" if ignored is None else f", ignore_index = {ignored}"
    return parse(
        f"g (float[b, 3] x, float[3, 4] w, {kind}[{sizes}] l) => (float loss) {{"
        f" r = MatMul (x, w) s = {LOSSES[loss]} {nodes}"
        f' loss = {loss} <reduction = "mean"{more}> (s, t) }}',
        "w",
    )


@pytest.mark.parametrize(("loss", "ignored", "between", "kind"), sampled(DRAWN))
def test_no_label_counts_from_the_last_class(loss, ignored, between, kind, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    sizes, _ = BETWEEN[between]
    path, _ = gt.save(gt.grad(_model(loss, ignored, between, kind)), tmp_path / "step.onnx")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def step(*labels):
        shaped = np.array(labels, kind).reshape([-1] + [1] * sizes.count(","))
        return session.run(["loss"], {"x": floats(4, 3), "l": shaped})[0]

    right = step(0, 1, 2, 3)
    assert np.isfinite(right)
    for label in {-1, -2, -100} - {ignored}:
        with pytest.raises(Exception, match=r"(?i)out of range"):
            step(0, 1, 2, label)
    if ignored is not None:
        assert np.isfinite(step(0, 1, 3, ignored))


@pytest.mark.parametrize(("loss", "ignored", "between", "kind"), sampled(DRAWN, 4))
def test_loading_takes_the_guards_out(loss, ignored, between, kind, tmp_path):
    training = gt.grad(_model(loss, ignored, between, kind))
    path, _ = gt.save(training, tmp_path / "step.onnx")
    again = gt.load(path)
    assert [n.op_type for n in again.graph] == [n.op_type for n in training.model.graph]
    feeds = {"x": floats(4, 3), "l": np.array([0, 1, 2, -3]).astype(kind)}
    feeds["l"] = feeds["l"].reshape([-1] + [1] * BETWEEN[between][0].count(","))
    with pytest.raises(gt.GradtoolError, match="a label is not one of"):
        gt.run(again, feeds)


def test_a_guard_of_another_label_stays(tmp_path):
    path, _ = gt.save(
        gt.grad(_model("SoftmaxCrossEntropyLoss", -1, "nothing", "int64")), tmp_path / "s"
    )
    model = onnx.load(path)
    (loss,) = (n for n in model.graph.node if n.op_type == "SoftmaxCrossEntropyLoss")
    (attribute,) = (a for a in loss.attribute if a.name == "ignore_index")
    attribute.i = -2
    assert "Less" in {n.op_type for n in gt.load(model).graph}

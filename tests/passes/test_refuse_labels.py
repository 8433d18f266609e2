"""A written graph refuses a negative label that stock onnxruntime counts from the last class."""

from __future__ import annotations

import itertools

import numpy as np
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
DRAWN = itertools.product(LOSSES, [None, -100, -1, 2], BETWEEN, ["int64", "int32"])


@pytest.mark.parametrize(("loss", "ignored", "between", "kind"), sampled(DRAWN))
def test_no_label_counts_from_the_last_class(loss, ignored, between, kind, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    sizes, nodes = BETWEEN[between]
    more = "" if ignored is None else f", ignore_index = {ignored}"
    model = parse(
        f"g (float[b, 3] x, float[3, 4] w, {kind}[{sizes}] l) => (float loss) {{"
        f" r = MatMul (x, w) s = {LOSSES[loss]} {nodes}"
        f' loss = {loss} <reduction = "mean"{more}> (s, t) }}',
        "w",
    )
    path, _ = gt.save(gt.grad(model), tmp_path / "step.onnx")
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

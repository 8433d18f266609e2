"""A few of the exports that `benchmarks/export_losses.py` tries, and what only fresh files show."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import gradtool as gt

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

SCRIPTED = (
    ("plain", "N", "none"), ("plain", "N", "Sigmoid"), ("slope", "N1", "none"),
    ("scale", "N1", "Sigmoid"), ("norm", "NC", "Softmax"), ("group", "NC", "LogSoftmax"),
    ("gain", "NTC", "none"), ("plain", "NCT", "Softmax"), ("scale", "NCHW", "none"),
    ("plain", "NHWC", "Softmax"), ("gain", "N1HW", "Sigmoid"), ("slope", "NCHW", "LogSoftmax"),
)  # fmt: skip
TRACED = (
    ("plain", "N1", "none", "dynamo"), ("scale", "NTC", "none", "dynamo"),
    ("group", "NCHW", "Softmax", "dynamo"), ("gain", "NC", "LogSoftmax", "raw"),
)  # fmt: skip
ESTIMATORS = (
    ("LogisticRegression", "binary", False, True), ("LogisticRegression", "several", True, False),
    ("LogisticRegression", "names", False, True), ("LinearRegression", "numbers", False, False),
    ("Ridge", "number", True, False), ("MLPClassifier", "binary", False, True),
    ("MLPClassifier", "several", True, False), ("MLPRegressor", "number", False, False),
    ("SGDClassifier", "binary", True, True), ("SGDRegressor", "number", False, False),
)  # fmt: skip


@pytest.mark.sample(1, 2.5)
@pytest.mark.extra
@pytest.mark.parametrize(("body", "shape", "activation"), SCRIPTED)
def test_a_model_scripted_by_pytorch_trains_as_there(body, shape, activation):
    pytest.importorskip("torch")
    import export_heads
    import export_losses as exports

    exports.check_head(export_heads.Case(body, shape, activation, "script"))


@pytest.mark.sample(1, 2.5)
@pytest.mark.extra
@pytest.mark.parametrize(("body", "shape", "activation", "exporter"), TRACED)
def test_a_model_traced_by_pytorch_trains_as_there(body, shape, activation, exporter):
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    import export_heads
    import export_losses as exports

    exports.check_head(export_heads.Case(body, shape, activation, exporter))


@pytest.mark.sample(1, 2.5)
@pytest.mark.extra
@pytest.mark.parametrize(("estimator", "target", "scaled", "zipmap"), ESTIMATORS)
def test_an_estimator_of_scikit_learn_trains(estimator, target, scaled, zipmap):
    pytest.importorskip("skl2onnx")
    import export_models

    export_models.check_model(export_models.Model(estimator, target, scaled, zipmap))


@pytest.mark.extra
@pytest.mark.slow
def test_every_export_trains_as_its_framework_does(capsys, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    pytest.importorskip("skl2onnx")
    import export_losses as exports

    monkeypatch.setattr(sys, "argv", ["exports.py", "--every", "7"])

    assert exports.main() == 0, capsys.readouterr().out


@pytest.mark.extra
def test_learnable_numbers_are_trained_where_the_exporter_says_so():
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    import export_losses as exports
    from export_heads import Case

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)
            self.scale = torch.nn.Parameter(torch.tensor(0.7))
            self.register_buffer("shift", torch.tensor([0.1, 0.2, 0.3]))

        def forward(self, x):
            return self.layer(x) * self.scale + self.shift

    case = Case("plain", "NC", "none", "dynamo")
    training = gt.grad(exports.loaded(case.exported(Scaled(), torch.randn(2, 4))))

    assert sorted(training.gradients) == ["layer.bias", "layer.weight", "scale"]
    assert training.warnings == ("buffers are not trained; --wrt NAME trains them: shift",)

"""Models of scikit-learn, exported by skl2onnx: estimators x targets x with a ZipMap or without."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

TARGETS = {"binary": 2, "several": 3, "names": 3, "number": 1, "numbers": 2}
LINEAR = ("LogisticRegression", "SGDClassifier")
CLASSIFIERS = (*LINEAR, "MLPClassifier")
REGRESSORS = ("LinearRegression", "Ridge", "MLPRegressor", "SGDRegressor")


@dataclass(frozen=True)
class Model:
    """An estimator on some target; `scaled` puts a StandardScaler before it."""

    estimator: str
    target: str
    scaled: bool
    zipmap: bool

    @property
    def name(self) -> str:
        """As in `LogisticRegression-binary-scaled-zipmap`."""
        flags = "-scaled" * self.scaled + "-zipmap" * self.zipmap
        return f"{self.estimator}-{self.target}{flags}"

    @property
    def classifies(self) -> bool:
        """Whether the target is a class."""
        return self.target in ("binary", "several", "names")

    def data(self) -> tuple[Any, Any]:
        """Features and target; classes overlap, so that no probability is 0."""
        rng = np.random.default_rng(3)
        x = rng.normal(size=(40, 4)).astype(np.float32) * 2 + 1
        noisy = x[:, 0] - x[:, 1] + rng.normal(size=40) * 3
        if self.target == "number":
            return x, noisy
        if self.target == "numbers":
            return x, np.stack([noisy, noisy * 0.5 + x[:, 2]], 1)
        edges = [0.0] if self.target == "binary" else [-1.5, 1.5]
        classes = np.digitize(noisy, edges)
        return x, np.array(["a", "b", "c"])[classes] if self.target == "names" else classes

    def fitted(self) -> Any:
        """The estimator after `fit`."""
        from sklearn import linear_model, neural_network
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        room = neural_network if "MLP" in self.estimator else linear_model
        options: dict[str, Any] = {}
        if "MLP" in self.estimator:
            options = {"hidden_layer_sizes": (5,), "activation": "tanh", "max_iter": 30}
        if "SGD" in self.estimator:
            options = {"alpha": 1.0, "max_iter": 20}
        if self.estimator == "SGDClassifier":
            options["loss"] = "log_loss"
        made = getattr(room, self.estimator)(**options)
        made = make_pipeline(StandardScaler(), made) if self.scaled else made
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return made.fit(*self.data())

    def exported(self, fitted: Any) -> bytes:
        """The file that skl2onnx writes."""
        from skl2onnx import to_onnx

        options = {"zipmap": self.zipmap} if self.classifies else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = to_onnx(fitted, self.data()[0][:1], options=options)
        return bytes(made.SerializeToString())

    def expected(self, fitted: Any) -> tuple[str, float, Any]:
        """The loss that is right, its value by scikit-learn, and labels other than those fitted."""
        x, y = self.data()
        if not self.classifies:
            labels = np.reshape(y, (len(x), -1)) * 0.5 + x[:, 3:]
            error = fitted.predict(x).reshape(labels.shape) - labels
            return "mse", float((error**2).mean()), labels.astype(np.float32)
        classes = np.roll(np.searchsorted(fitted.classes_, y), 1)
        p = fitted.predict_proba(x)[np.arange(len(x)), classes]
        return "ce", float(-np.log(p).mean()), classes.astype(np.int64)


def check_model(case: Model) -> None:
    """One model of scikit-learn: loss, parameters, gradients by differences, and a step of SGD."""
    from export_judge import Wrong, check_choice, loaded, stepped

    import gradtool as gt
    from gradtool.exec.verify import finite_differences

    fitted = case.fitted()
    kind, loss, labels = case.expected(fitted)
    model = loaded(case.exported(fitted))
    training = gt.grad(model)
    feeds = {model.graph.inputs[0].name: case.data()[0], "labels": labels}
    found = check_choice(training, kind, feeds, loss)
    result = gt.run(training, feeds)
    finite_differences(training.model, feeds, result)
    count = sum(g.size for g in found.values())
    right = _size(fitted)
    if count != right:
        raise Wrong(f"{count} numbers are trained, the estimator has {right}")
    after = stepped(model, feeds)
    again = gt.grad(model)
    for name, array in after.items():
        again.model.graph.initializers[name].const_value = ir.Tensor(array, name=name)
    if not gt.run(again, feeds).loss <= result.loss + 1e-6:
        raise Wrong("three steps of SGD do not lower the loss")


def _size(fitted: Any) -> int:
    """How many numbers the estimator learns."""
    last = fitted.steps[-1][1] if hasattr(fitted, "steps") else fitted
    parts = [*last.coefs_, *last.intercepts_] if hasattr(last, "coefs_") else None
    parts = parts or [last.coef_, np.atleast_1d(last.intercept_)]
    return sum(part.size for part in parts)


def cases() -> Iterator[Model]:
    """Every case; only linear models predict several numbers, since skl2onnx flattens the others.

    Classes of SGD one against the rest have a loss of their own: it is tested elsewhere.
    """
    for estimator, target, scaled, zipmap in itertools.product(
        (*CLASSIFIERS, *REGRESSORS), TARGETS, (False, True), (False, True)
    ):
        case = Model(estimator, target, scaled, zipmap)
        if case.classifies != (estimator in CLASSIFIERS) or (zipmap and not case.classifies):
            continue
        if estimator == "SGDClassifier" and target != "binary":
            continue
        if target == "numbers" and estimator not in ("LinearRegression", "Ridge"):
            continue
        yield case

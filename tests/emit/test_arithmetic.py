"""Operators of Python between values."""

import numpy as np
import pytest
from graphs import parse

import gradtool as gt

X = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)


@pytest.mark.parametrize(
    "formula",
    [
        lambda y: (y**2).mean(),
        lambda y: (2.0**y).mean(),
        lambda y: abs(y).mean(),
        lambda y: (y @ y).sum(),
        lambda y: (np.eye(3, dtype=np.float32)[:2] @ y if isinstance(y, np.ndarray) else
                   y.__rmatmul__(np.eye(3, dtype=np.float32)[:2])).mean(),
        lambda y: (y.sum(1) ** 2).mean(),
        lambda y: (y.mean(0) * 3).sum(),
        lambda y: (abs(y) ** 0.5).mean(),
    ],
)  # fmt: skip
def test_an_operator_is_that_of_numpy(formula):
    model = parse("g (float[3, 3] x) => (y) { y = Identity (x) }")
    training = gt.grad(model, loss=lambda op, y: formula(y), wrt=["x"])  # noqa: ARG005
    assert gt.run(training, {"x": X}).loss == pytest.approx(float(formula(X)), rel=1e-5)

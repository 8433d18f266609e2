"""The norm of all gradients as an output, beside the gradients and beside updates."""

import numpy as np
import pytest
from conftest import build

import gradtool as gt
from gradtool.errors import UsageError

NET = """net (float[2, 3] x) => (float[2, 4] y) {
    h = MatMul (x, w)
    y = Add (h, b)
}"""


def norm(gradients):
    return np.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in gradients.values()))


@pytest.fixture
def model():
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(3, 4)), "b": np.zeros(4)}
    return gt.load(build(NET, **{n: a.astype(np.float32) for n, a in weights.items()}))


@pytest.mark.parametrize("how", [{}, {"head_grads": True}, {"accumulate": "sum"}])
def test_it_is_that_of_the_gradients_that_are_returned(model, how):
    found = gt.run(gt.grad(model, grad_norm=True, **how))

    assert found.outputs["grad_norm"] == pytest.approx(norm(found.gradients), rel=1e-6)


def test_beside_an_update_it_is_that_before_limits(model):
    plain = gt.run(gt.grad(model))
    step = gt.run(gt.grad(model, grad_norm=True, optimizer="sgd", clip_norm=1e-3))

    assert step.outputs["grad_norm"] == pytest.approx(norm(plain.gradients), rel=1e-6)


def test_it_stays_where_the_outputs_of_the_model_do_not(model):
    found = gt.grad(model, grad_norm=True, only_loss=True).model

    assert "grad_norm" in [v.name for v in found.graph.outputs]


def test_rows_have_no_norm_of_whole_gradients(model):
    with pytest.raises(UsageError, match="grad_norm cannot be combined with sparse"):
        gt.grad(model, grad_norm=True, optimizer="sgd", sparse=True)

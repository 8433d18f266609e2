"""`only_loss`: a step returns the loss and gradients, and what the model returns dies within."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from graphs import floats, parse
from hypothesis import given
from random_graphs import assemble, recipes

import gradtool as gt
from gradtool.graph.training_info import TrainingInfo

sys.path.append(str(Path(__file__).parents[1]))
from test_random_graphs import ci

HEADS = """g (float[N, 6] x, float[6, 8] w, float[8, 8] v) => (out, aux, soft) {
    h = MatMul (x, w) out = MatMul (h, v) aux = Tanh (h) soft = Softmax (out)
}"""
NORM = """g (float[N, 3, 2] x, float[3] s, float[3] b, float[3] m, float[3] v) => (y) {
    h = BatchNormalization (x, s, b, m, v) y = Tanh (h)
}"""


def returned(training):
    return [v.name for v in training.model.graph.outputs]


@pytest.mark.exhaustive
@given(recipes())
@ci
def test_gradients_are_those_of_a_step_that_returns_everything(recipe):
    model = assemble(recipe)
    shown = [v for node in model.graph for v in node.outputs if v not in model.graph.outputs]
    model.graph.outputs.extend(v for v in shown if v.name and v.dtype is not None)
    graphs = [
        gt.grad(model, loss="loss", wrt=list(recipe.leaves), only_loss=only)
        for only in (False, True)
    ]
    both = [gt.run(graph, recipe.inputs, check_arena=True) for graph in graphs]
    stays = {"loss", *TrainingInfo.of(graphs[1].model).of_next}

    assert set(both[1].outputs) == stays
    assert set(both[0].outputs) == stays | {v.name for v in model.graph.outputs}
    assert both[1].loss == pytest.approx(both[0].loss, rel=1e-12)
    for name, gradient in both[0].gradients.items():
        np.testing.assert_allclose(both[1].gradients[name], gradient, rtol=1e-10, atol=1e-12)


def test_losses_that_are_added_stay_and_so_do_gradients():
    both = [
        gt.grad(parse(HEADS, "w v"), loss=["ce:out", "0.5*mean:aux"], only_loss=only)
        for only in (False, True)
    ]

    assert returned(both[0])[:3] == ["out", "aux", "soft"]
    assert returned(both[1]) == returned(both[0])[3:]
    assert returned(both[1])[:3] == ["loss_out", "loss_aux", "loss"]
    assert not any(node.op_type == "Softmax" for node in both[1].model.graph)


def test_a_loss_of_the_model_stays():
    text = HEADS.replace("(out, aux, soft)", "(out, aux, mean)").replace(
        "soft = Softmax (out)", "mean = ReduceMean <keepdims = 0> (aux)"
    )
    training = gt.grad(parse(text, "w v"), loss="mean", wrt=["w"], only_loss=True)

    assert returned(training) == ["mean", "w_grad"]


def test_next_values_of_state_and_parameters_stay():
    options = {"loss": "sum:y", "train_mode": True, "optimizer": "sgd"}
    training = gt.grad(parse(NORM, "s b m v"), only_loss=True, **options)
    plain = gt.grad(parse(NORM, "s b m v"), **options)

    assert json.loads(training.model.metadata_props["gradtool.state"]) == json.loads(
        plain.model.metadata_props["gradtool.state"]
    )
    assert returned(training) == returned(plain)[1:]
    assert returned(plain)[0] == "y"


def test_a_second_order_keeps_what_the_first_one_returned_of_its_own():
    first = gt.grad(parse(HEADS, "w v"), loss="ce:out")
    training = gt.grad(first, loss="sum:w_grad", wrt=["v"], only_loss=True)

    assert returned(training)[:3] == ["loss", "w_grad", "v_grad"]
    assert not {"out", "aux", "soft"} & set(returned(training))


def test_the_gradient_lies_where_the_output_was():
    text = """g (float[64, 32] x, float[32, 1000] w) => (y) { y = MatMul (x, w) }"""
    peaks = [
        gt.plan(gt.grad(parse(text, "w"), loss="ce:y", only_loss=only)).total
        for only in (False, True)
    ]

    assert peaks[0] - peaks[1] >= 64 * 1000 * 4 * 0.9


def test_head_gradients_are_of_what_is_returned():
    with pytest.raises(gt.UsageError, match="head_grads cannot be combined with only_loss"):
        gt.grad(parse(HEADS, "w v"), head_grads=True, only_loss=True)


def test_a_session_evaluates_the_loss_alone():
    with gt.Session(gt.grad(parse(HEADS, "w v"), loss="mean:aux", only_loss=True)) as session:
        assert set(session.evaluate({"x": floats(3, 6)}).outputs) == {"loss"}
    training = gt.grad(parse(HEADS, "w v"), loss="ce:out", only_loss=True)
    with gt.Session(training) as session, pytest.raises(gt.UsageError, match="labels are missing"):
        session.evaluate({"x": floats(3, 6)})

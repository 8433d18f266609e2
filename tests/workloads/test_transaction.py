"""What was opened and moved on trial is taken back: the model is what it was, byte for byte."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from choices import SOURCES, forward
from conftest import trials
from graphs import parse
from hypothesis import given, settings
from random_graphs import Recipe, assemble, recipes

import gradtool as gt
from gradtool.passes.residuals import Sizes
from gradtool.workloads.hoist import decide
from gradtool.workloads.save_less import Draft


def written(model: ir.Model) -> bytes:
    return ir.serde.serialize_model(model).SerializeToString(deterministic=True)


def tried(model: ir.Model) -> bool:
    """Open and move what can be, take it back; whether there was anything."""
    first = decide(model, Sizes())
    before = written(model)
    draft = Draft(model, first.opened)
    draft.move(decide(model, Sizes()).moved)
    changed = written(model) != before
    draft.restore()

    assert written(model) == before
    return changed


@pytest.mark.parametrize("name", SOURCES)
def test_every_choice_is_taken_back(name):
    options = {"head_grads": True, "input_grad": ["x"], "wrt": []}

    assert tried(gt.grad(forward(name), save_less=False, **options).model)


@settings(max_examples=trials(25), deadline=None)
@given(recipes(most=25))
def test_random_graphs_are_restored(recipe: Recipe):
    model = assemble(recipe, np.float32)
    wrt, inputs = [*recipe.weights], [*recipe.inputs]
    tried(gt.grad(model, loss="loss", wrt=wrt, input_grad=inputs, save_less=False).model)


def test_a_composite_that_is_the_result_of_the_model_is_taken_back():
    """The gradient of x is what the composite computes."""
    text = "g (float[64, 8] x) => (z) { y = Relu (x) z = Neg (y) }"
    model = gt.grad(parse(text), head_grads=True, input_grad=["x"], save_less=False).model

    assert model.graph.outputs[1].producer().op_type == "ReluGrad"
    assert tried(model)
    assert model.graph.outputs[1].producer().op_type == "ReluGrad"

"""A long model is checked a part at a time: what is refused of it is what is refused at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from conftest import trials
from graphs import parse
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import Recipe, assemble, recipes

import gradtool as gt
from gradtool.io import checkable, streamed_proto
from gradtool.ops.composites.calls import inline

SAMPLES = sorted((Path(__file__).resolve().parents[2] / "samples").glob("*.onnx"))


@pytest.fixture(params=[1, 3, 1000], autouse=True)
def nodes(request, monkeypatch):
    """How many nodes a part has."""
    monkeypatch.setattr(streamed_proto, "NODES", request.param)


def said(model: ir.Model, how) -> str | None:
    how.begin(streamed_proto.before_nodes(model))
    for run in streamed_proto.runs(model):
        how.add(run)
    return how.end(streamed_proto.around(model))


def both(model: ir.Model) -> tuple[str | None, str | None]:
    return said(model, checkable.InParts(model)), said(model, checkable.AtOnce())


@pytest.mark.sample(4)
@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_training_graphs_of_samples_are_valid_part_by_part(path):
    model = gt.grad(gt.load(path)).model
    inline(model)

    assert both(model) == (None, None)


@settings(max_examples=trials(25), deadline=None)
@given(recipes(most=10))
def test_random_graphs_are_valid_part_by_part(recipe: Recipe):
    assert both(assemble(recipe, np.float32)) == (None, None)


def lose(_model, node):
    """Let a node read what nothing writes."""
    node.replace_input_with(0, ir.Value(name="lost"))


def repeat(model, node):
    """Write a name again that has been written before."""
    node.outputs[0].name = model.graph.inputs[0].name


def rename(_model, node):
    """Use an operator that is none."""
    node.op_type = "Nothing"


def mistype(_model, node):
    """Say of a result that it has a type that it has not."""
    node.outputs[0].type = ir.TensorType(ir.DataType.STRING)


@settings(max_examples=trials(60), deadline=None)
@given(recipes(most=8), st.sampled_from([lose, repeat, rename, mistype]), st.data())
def test_what_is_refused_at_once_is_refused_part_by_part(recipe: Recipe, damage, data):
    model = assemble(recipe, np.float32)
    able = [n for n in model.graph if any(v is not None for v in n.inputs[:1])]
    if not able:
        return
    damage(model, data.draw(st.sampled_from(able)))
    in_parts, at_once = both(model)

    assert at_once is not None
    assert in_parts is not None


def test_a_node_that_comes_before_what_it_reads_is_refused():
    model = parse("g (float[2] x) => (float[2] z) { y = Relu (x) z = Neg (y) }")
    first, second = list(model.graph)
    model.graph.remove(first)
    model.graph.insert_after(second, first)

    assert all("topologically sorted" in (each or "") for each in both(model))


def test_only_long_models_whose_types_are_known_are_checked_in_parts(monkeypatch):
    model = gt.load(SAMPLES[0])
    assert isinstance(checkable.checkable(model), checkable.AtOnce)

    monkeypatch.setattr(checkable, "MOST_AT_ONCE", 1)
    assert isinstance(checkable.checkable(model), checkable.InParts)
    model.graph[0].outputs[0].type = None
    assert isinstance(checkable.checkable(model), checkable.AtOnce)

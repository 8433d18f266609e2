"""What is stamped is what would have been emitted: gradients of nodes, and bodies of calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from graphs import parse
from hypothesis import given, settings
from random_graphs import Recipe, assemble, recipes

import gradtool as gt
from gradtool.functions import stamps
from gradtool.functions.calls import inline

SAMPLES = sorted((Path(__file__).resolve().parents[2] / "samples").glob("*.onnx"))
LAYERS = """g (float[batch, 8] x, float[8] s, float[8] b) => (float loss) {
    n0 = LayerNormalization (x, s, b)  t0 = Tanh (n0)
    n1 = LayerNormalization (t0, s, b) t1 = Tanh (n1)
    n2 = LayerNormalization (t1, s, b) t2 = Tanh (n2)
    loss = ReduceMean <keepdims = 0> (t2)
}"""


def written(model: ir.Model) -> bytes:
    inline(model)
    return ir.serde.serialize_model(model).SerializeToString(deterministic=True)


def both(model: ir.Model) -> tuple[bytes, bytes]:
    """A training graph that is stamped, and one of which everything is emitted by itself."""
    stamped = written(gt.grad(model).model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stamps.Stamps, "_key", lambda *_: None)
        return stamped, written(gt.grad(model).model)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_samples_are_the_same(path):
    stamped, emitted = both(gt.load(path))

    assert stamped == emitted


@pytest.mark.exhaustive
@settings(max_examples=40, deadline=None)
@given(recipes(most=12))
def test_random_graphs_are_the_same(recipe: Recipe):
    stamped, emitted = both(assemble(recipe, np.float32))

    assert stamped == emitted


def test_the_layers_of_a_model_are_emitted_once(monkeypatch):
    put = []
    real = stamps.Stamps._put
    monkeypatch.setattr(stamps.Stamps, "_put", lambda *args: put.append(args[1]) or real(*args))
    stamped, emitted = both(parse(LAYERS, weights="s b"))

    assert stamped == emitted
    assert [[step.op_type for step in stamp.steps] for stamp in put].count(["TanhGrad"]) == 2

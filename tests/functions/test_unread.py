"""What a call has no use for is not written, and the call is found again without it."""

from __future__ import annotations

import clones
import numpy as np
import onnx_ir as ir
import pytest
from conftest import trials
from graphs import floats, parse
from hypothesis import HealthCheck, given, settings
from random_graphs import assemble, recipes
from stock_files import _forward_values

import gradtool as gt
from gradtool.graph.composites import DOMAIN
from gradtool.graph.metadata import CALL
from gradtool.graph.predicates import is_used
from gradtool.ops.composites.calls import inline
from gradtool.ops.composites.dead_outputs import drop_unread
from gradtool.ops.composites.outline import outline

POOL = """g (float[2, 3, 8, 8] x) => (float[2, 3, 4, 4] y) {
    a = Sigmoid (x)
    p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a)
    y = Tanh (p)
}"""


def recomputed(training: gt.TrainingGraph) -> ir.Model:
    """All that forward computes, computed twice."""
    return clones.recompute(training.model, _forward_values(training.model))


def calls(model: ir.Model) -> list[tuple[str, str, int]]:
    return [(n.name or "", n.op_type, len(n.outputs)) for n in model.graph if n.domain == DOMAIN]


def unread(model: ir.Model) -> list[str]:
    return [n.name or "" for n in model.graph
            if CALL in n.metadata_props and not any(map(is_used, n.outputs))]  # fmt: skip


@pytest.fixture
def pooled() -> ir.Model:
    """A pool whose places only its clone's are read of."""
    return recomputed(gt.grad(parse(POOL), loss="sum", wrt=["x"]))


def test_places_that_nobody_reads_are_not_computed(pooled):
    inline(pooled)
    before = [n for n in pooled.graph if n.op_type == "MaxPool"]
    assert [len(n.outputs) for n in before] == [2, 2]
    assert unread(pooled)

    assert drop_unread(pooled) > 0

    assert unread(pooled) == []
    after = [n for n in pooled.graph if n.op_type == "MaxPool"]
    assert sorted(len(n.outputs) for n in after) == [1, 2]


def test_the_calls_are_found_again(pooled):
    expected = calls(pooled)
    inline(pooled)
    drop_unread(pooled)

    outline(pooled)

    assert calls(pooled) == expected


def test_other_outputs_than_optional_ones_count():
    model = parse("g (float[6] x) => (float[2] a) { a, b, c = Split <axis = 0, num_outputs = 3> "
                  "(x) }")  # fmt: skip
    (node,) = model.graph
    node.metadata_props[CALL] = "made up"

    assert drop_unread(model) == 0
    assert len(node.outputs) == 3


@pytest.mark.exhaustive
@settings(max_examples=trials(25), derandomize=True, database=None, deadline=None,
          suppress_health_check=list(HealthCheck))  # fmt: skip
@given(recipe=recipes(most=15))
def test_random_graphs_hold_nothing_unread_and_load_as_they_were(recipe, tmp_path_factory):
    forward = assemble(recipe, np.float32)
    model = recomputed(gt.grad(forward, loss="loss", wrt=list(recipe.leaves)))
    path = tmp_path_factory.mktemp("graph") / "m.onnx"

    for barrier in (False, True):
        gt.save(model, path, force=True, barrier=barrier)
        again = gt.load(path)

        assert unread(ir.load(path)) == []
        assert calls(again) == calls(model)
        assert gt.plan(again).total == gt.plan(model).total


def test_gradients_keep_their_bits(pooled, tmp_path):
    x = floats(2, 3, 8, 8)
    expected = gt.run(pooled, {"x": x}).gradients["x"]

    gt.save(pooled, tmp_path / "m.onnx", barrier=True)

    found = gt.run(gt.load(tmp_path / "m.onnx"), {"x": x}).gradients["x"]
    assert np.array_equal(found, expected)

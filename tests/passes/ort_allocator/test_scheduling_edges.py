"""Runtimes that order nodes anew may not run what waits before what it waits for."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from clones import recompute
from conftest import trials
from graphs import floats, parse, stock
from hypothesis import HealthCheck, given, settings
from random_graphs import assemble, recipes
from stock_files import _forward_values

import gradtool as gt
from gradtool.graph.metadata import BARRIER
from gradtool.graph.reads import reads
from gradtool.ops.composites.calls import inline
from gradtool.passes.ort_allocator.barrier import barrier
from gradtool.passes.ort_allocator.control_edges import is_backward
from gradtool.passes.ort_allocator.strip_barriers import strip_barriers

LARGE = """g (float[8, 4, 48, 48] x, float[4, 4, 3, 3] w1, float[4, 4, 3, 3] w2) => (y) {
    a = Conv <pads = [1, 1, 1, 1]> (x, w1)
    b = Relu (a)
    p = MaxPool <kernel_shape = [2, 2], strides = [1, 1]> (b)
    c = Conv <pads = [1, 1, 1, 1]> (p, w2)
    y = Sigmoid (c)
}"""


@pytest.fixture
def model() -> ir.Model:
    """Convolutions around a pool, which is computed again."""
    training = gt.grad(parse(LARGE, "w1 w2"), loss="sum", input_grad=["x"])
    made = recompute(training.model, ["p"])
    inline(made)
    return made


def before(model: ir.Model) -> dict[ir.Value, set[ir.Value]]:
    """By value, all that it depends on: what no order can put after it."""
    found: dict[ir.Value, set[ir.Value]] = {}
    for node in model.graph:
        read = set(reads(node))
        needed = read.union(*(found.get(v, set()) for v in read))
        found |= dict.fromkeys(node.outputs, needed)
    return found


def test_zeros_are_not_made_before_a_gradient(model):
    (zeros,) = (n for n in model.graph
                if n.op_type == "ConstantOfShape" and "MaxPoolGrad" in n.name)  # fmt: skip
    x = model.graph.inputs[0]
    assert x not in before(model)[zeros.outputs[0]]

    barrier(model)

    assert x in before(model)[zeros.outputs[0]]


def test_the_first_layers_gradient_waits_for_the_last_layers(model):
    outputs = {v.name: v for v in model.graph.outputs}
    assert outputs["w2_grad"] not in before(model)[outputs["w1_grad"]]

    barrier(model)

    assert outputs["w2_grad"] in before(model)[outputs["w1_grad"]]


def test_what_is_put_off_waits_for_the_gradient_before_it(model):
    """Where the file has the last layer's weight gradient at its end, whatever order is run."""
    outputs = {v.name: v for v in model.graph.outputs}
    late, early = outputs["w2_grad"], outputs["x_grad"]
    needed, elsewhere = before(model)[late] | {late}, before(model)[early] | {early}
    for node in list(model.graph):
        made = set(node.outputs)
        if is_backward(node) and made & needed and not made & elsewhere:
            model.graph.remove(node)
            model.graph.append(node)
    assert early not in before(model)[late]
    expected = stock(model, x=floats(8, 4, 48, 48))

    barrier(model)

    assert early in before(model)[late]
    for name, array in stock(model, x=floats(8, 4, 48, 48)).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_forward_goes_on_after_what_it_makes_smaller_for_backward(model):
    loss = next(v for v in model.graph.outputs if v.name == "loss")
    places = next(v for n in model.graph for v in n.outputs if v.name == "MaxPool:1")
    assert places not in before(model)[loss]

    barrier(model)

    assert places in before(model)[loss]


def test_results_before_clones_of_weights_only_are_waited_for_by_the_next():
    text = """g (float[3, 5] x, float[5, 5] w1, float[5, 5] w2, float[5, 5] w3) => (y) {
        a = MatMul (x, w1)
        b = Tanh (a)
        s = Sin (w2)
        c = MatMul (b, s)
        d = Tanh (c)
        e = MatMul (d, w3)
        y = Tanh (e)
    }"""
    training = gt.grad(parse(text, "w1 w2 w3"), loss="sum", input_grad=["x"])
    made = recompute(training.model, ["b", "s"])
    assert barrier(made) == 1

    (clone,) = (n for n in made.graph if n.name == "Tanh_mirror")
    outputs = {v.name: v for v in made.graph.outputs}
    assert outputs["w3_grad"] in before(made)[clone.outputs[0]]


@pytest.mark.exhaustive
@settings(max_examples=trials(25), derandomize=True, database=None, deadline=None,
          suppress_health_check=list(HealthCheck))  # fmt: skip
@given(recipe=recipes(most=15))
def test_bits_stay_and_all_of_it_can_be_taken_out_again(recipe):
    training = gt.grad(assemble(recipe, np.float32), loss="loss", wrt=list(recipe.leaves))
    made = recompute(training.model, _forward_values(training.model))
    inline(made)
    feeds = {n: a.astype(np.float32) for n, a in recipe.inputs.items()}
    names = [n.name for n in made.graph]
    with np.errstate(all="ignore"):
        expected = gt.run(made, feeds).gradients
        barrier(made)
        found = gt.run(made, feeds).gradients

    assert {n: g.tobytes() for n, g in found.items()} == {
        n: g.tobytes() for n, g in expected.items()
    }
    strip_barriers(made)
    assert [n.name for n in made.graph] == names


def test_bits_stay_where_values_are_large(model):
    feeds = {"x": floats(8, 4, 48, 48)}
    expected = gt.run(model, feeds).gradients
    names = [n.name for n in model.graph]

    barrier(model)

    found = gt.run(model, feeds).gradients
    assert all(found[n].tobytes() == g.tobytes() for n, g in expected.items())
    assert any(BARRIER in n.metadata_props for n in model.graph)
    strip_barriers(model)
    assert [n.name for n in model.graph] == names


TWINS = """g (float[8, 4, 48, 48] x, float[4, 4, 3, 3] w1, float[4, 4, 3, 3] w2, float[4] b1,
        float[4] b2) => (y) {
    a = Tanh (x) p = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (a)
    c = Conv <pads = [1, 1, 1, 1]> (a, w1, b1) d = Conv <pads = [1, 1, 1, 1]> (a, w2, b2)
    e = Add (c, d) f = Tanh (e) y = Sigmoid (f)
}"""


def test_equal_sums_are_not_to_be_merged():
    """Both biases of two convolutions that are added have the sum of one gradient."""
    training = gt.grad(parse(TWINS, "w1 w2 b1 b2"), loss="sum:y")
    made = recompute(training.model, ["a"])
    inline(made)
    whole = [8, 4, 48, 48]
    sums = [n for n in made.graph if n.op_type == "ReduceSum" and n.inputs[0].shape == whole]
    twins = [n for n in sums if [m.inputs[0] for m in sums].count(n.inputs[0]) > 1]
    assert len(twins) == 2
    x = {"x": floats(*whole)}
    expected = gt.run(made, x).gradients

    barrier(made)

    first, second = twins
    assert first.inputs[0] is not second.inputs[0]
    assert first.outputs[0] in before(made)[second.outputs[0]]
    found = gt.run(made, x).gradients
    for name, gradient in expected.items():
        assert found[name].tobytes() == gradient.tobytes()
    strip_barriers(made)
    assert first.inputs[0] is second.inputs[0]

"""A gradient that only chooses keeps the choice: fewer bytes, the same bits."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from choices import SOURCES, forward
from graphs import floats, lines, parse
from staged import saved_less

import gradtool as gt
from gradtool.graph.composites import composites
from gradtool.graph.stages import is_hoisted
from gradtool.passes.masks import CHOICES, choice_bytes, choice_of
from gradtool.passes.residuals import Sizes, residuals

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1.0, -1.0, 3.0, -3.0]


def special(*shape: int, seed: int, dtype: type = np.float32) -> np.ndarray:
    """Numbers of which every third is an edge case."""
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal(shape).astype(dtype)
    picked = rng.choice(np.array(SPECIAL, dtype=dtype), shape)
    return np.where(rng.random(shape) < 0.33, picked, numbers).astype(dtype)


def both(model: ir.Model, **options) -> tuple[gt.TrainingGraph, gt.TrainingGraph]:
    """The training graph as rules make it, and with less saved, whatever its peak."""
    options = {"head_grads": True, "input_grad": ["x"], "wrt": [], **options}
    plain = gt.grad(model, save_less=False, **options)
    return plain, replace(plain, model=saved_less(plain.model, any_peak=True))


def calls(training: gt.TrainingGraph, name: str) -> list[ir.Node]:
    return [n for n in training.model.graph if n.op_type == name]


def test_every_choice_is_of_a_composite_and_has_a_source():
    assert CHOICES.keys() <= composites().keys()
    assert CHOICES.keys() == SOURCES.keys()


@pytest.mark.parametrize("dtype", ["float", "double", "float16"])
@pytest.mark.parametrize("name", SOURCES)
def test_the_choice_has_the_bits_of_the_composite(name, dtype):
    if dtype == "float16" and CHOICES[name].bytes == 2:
        pytest.skip("in half precision the choice is no smaller than the number")
    before, after = both(forward(name, dtype))
    kind = before.model.graph.inputs[0].dtype.numpy()
    feeds = {"w": np.zeros(9, kind)}
    for seed, value in enumerate(v for v in before.model.graph.inputs if v.name != "w"):
        feeds[value.name] = special(*(2, *list(value.shape)[1:]), seed=seed, dtype=kind)
    expected = gt.run(before, feeds, kernels="numpy").gradients
    actual = gt.run(after, feeds, kernels="numpy").gradients

    assert calls(before, name)
    assert not calls(after, name)
    assert any(is_hoisted(n) for n in after.model.graph)
    assert residuals(after.model).bytes < residuals(before.model).bytes
    for gradient, array in expected.items():
        assert array.tobytes() == actual[gradient].tobytes(), gradient


@pytest.mark.parametrize("name", SOURCES)
def test_what_is_kept_takes_the_bytes_that_were_foretold(name):
    before, after = both(forward(name))
    (node,) = calls(before, name)

    foretold = choice_bytes(node, choice_of(node), Sizes())
    sizes = [v for v in residuals(after.model).values if v.dtype == ir.DataType.INT64]

    assert residuals(before.model).bytes > foretold > 0
    assert residuals(after.model).bytes - foretold in (0, *(8 * len(v.shape) for v in sizes))


def test_a_mask_is_kept_in_place_of_the_output_of_relu():
    text = "g (float[N, 4] x, float[4] w) => (y) { h = Mul (x, w) r = Relu (h) y = Neg (r) }"
    before, after = both(parse(text, "w"))

    assert [v.name for v in residuals(before.model).values] == ["r"]
    assert lines(before.model) == [
        "h = Mul (x, w)",
        "r = Relu (h)",
        "y = Neg (r)",
        "Neg/grad/Neg:0 = Neg (y_grad)",
        "Relu/grad/ReluGrad:0 = ReluGrad (r, Neg/grad/Neg:0)",
        *lines(before.model)[5:],
    ]
    assert lines(after.model)[:6] == [
        "h = Mul (x, w)",
        "r = Relu (h)",
        "Relu/grad/ReluGrad/Cast:0 = Cast (r)",
        "y = Neg (r)",
        "Neg/grad/Neg:0 = Neg (y_grad)",
        "Relu/grad/ReluGrad:0 = MaskGrad (Relu/grad/ReluGrad/Cast:0, Neg/grad/Neg:0)",
    ]


@pytest.mark.parametrize(
    "rest",
    [
        "y = Mul (r, r)",  # whose gradient reads r
        "y = Identity (r)",  # so that r is what y is made of, which is a result
    ],
)
def test_a_value_that_is_kept_anyway_needs_no_mask(rest):
    text = f"g (float[N, 4] x, float[4] w) => (y) {{ h = Mul (x, w) r = Relu (h) {rest} }}"
    before, after = both(parse(text, "w"))

    assert lines(after.model) == lines(before.model)


def test_a_gradient_like_that_of_relu_compares_with_zero():
    """What is not known to be the result of Relu may be negative."""
    text = "g (float[N, 4] x, float[4] w) => (y) { h = Mul (x, w) r = Relu (h) y = Neg (r) }"
    before, _ = both(parse(text, "w"))
    (node,) = calls(before, "ReluGrad")
    node.replace_input_with(0, before.model.graph.node("Mul").outputs[0])
    after = replace(before, model=saved_less(before.model, any_peak=True))
    feeds = {"x": special(3, 4, seed=1), "y_grad": special(3, 4, seed=2)}
    expected = gt.run(before, feeds, kernels="numpy").gradients

    assert [n.op_type for n in after.model.graph if is_hoisted(n)] == ["LessOrEqual"]
    for name, array in gt.run(after, feeds, kernels="numpy").gradients.items():
        assert array.tobytes() == expected[name].tobytes()


def test_two_gradients_that_choose_by_one_value_release_it_together():
    text = """g (float[N, 4] x, float[4] w) => (y, z) {
        h = Add (x, w) y = Abs (h) c = Clip (h, low, high) z = Neg (c)
    }""".replace("=> (y, z)", "=> (y, z) <float low = {-1.0}, float high = {1.0}>")
    before, after = both(parse(text))

    assert residuals(before.model).bytes == 8 * 4 * 4
    assert residuals(after.model).bytes == 8 * 4 * (2 + 1)
    assert {n.op_type for n in after.model.graph if is_hoisted(n)} >= {"Sign", "Cast", "Less"}


def test_choices_that_together_are_no_smaller_are_not_kept():
    """Two masks of Max, two bytes of Abs: as many as the number itself."""
    text = """g (float[N, 4] x, float[4] w) => (y, z) <float zero = {0.0}> {
        h = Add (x, w) y = Abs (h) z = Max (h, zero)
    }"""
    before, after = both(parse(text))

    assert lines(after.model) == lines(before.model)


def test_a_choice_between_two_values_is_kept_if_that_releases_enough():
    text = """g (float[N, 4] x, float[4] w, float[4] v) => (y) {
        a = Add (x, w) b = Add (x, v) m = Max (a, b) y = Neg (m)
    }"""
    before, after = both(parse(text, "w v"), wrt=["w", "v"], input_grad=[])

    assert residuals(before.model).bytes == 2 * 8 * 4 * 4
    assert residuals(after.model).bytes == 8 * 4 * 4


def test_a_bound_that_is_absent_stays_absent():
    text = """g (float[N, 4] x, float[4] w) => (y) <float high = {1.0}> {
        h = Add (x, w) c = Clip (h, , high) y = Neg (c)
    }"""
    before, after = both(parse(text))
    feeds = {"x": special(3, 4, seed=1), "w": floats(4), "y_grad": floats(3, 4, seed=2)}
    expected = gt.run(before, feeds, kernels="numpy").gradients

    assert [n.op_type for n in after.model.graph if is_hoisted(n)] == ["Greater"]
    for name, array in gt.run(after, feeds, kernels="numpy").gradients.items():
        assert array.tobytes() == expected[name].tobytes()


def test_dropout_and_max_pooling_keep_a_mask_and_places():
    text = """g (float[N, 3, 8, 8] x, float[8] w) => (y) <float ratio = {0.5}, bool on = {1}> {
        h = Add (x, w) d, mask = Dropout <seed = 7> (h, ratio, on)
        p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (d) y = Neg (p)
    }"""
    after = gt.grad(parse(text, "w"), head_grads=True)
    kept = residuals(after.model).values

    assert sorted(v.dtype.name for v in kept if len(v.shape) == 4) == ["BOOL", "UINT8"]
    assert all(v.shape is not None and len(v.shape) in (1, 4) for v in kept)


def test_the_second_order_takes_no_constant_of_a_mask_for_a_parameter():
    text = "g (float[N, 4] x, float[4] w) => (y) { h = Mul (x, w) r = Relu (h) y = ReduceSum (r) }"
    _, first = both(parse(text, "w"), loss="sum:y", head_grads=False)
    second = gt.grad(first, loss="sum:x_grad")

    assert any(is_hoisted(n) for n in first.model.graph)
    assert not any(is_hoisted(n) for n in second.model.graph)
    assert set(second.gradients) == {"w"}
    assert json.loads(second.model.metadata_props["gradtool.gradients"]) == dict(second.gradients)

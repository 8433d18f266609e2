"""Resize by its input's sizes: repetitions, kept sizes, fractions, and a sample of the sweep."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import onnx
import pytest
from resize_checks import UNKNOWN, Stock, examine
from resizes import COORDINATES, ROUNDINGS, Resizing, draw, model_of

import gradtool as gt
from gradtool.operators.resampling import taps
from gradtool.ops.shape.body_resize import SAMPLE

SCALED = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def scales(*values):
    return np.asarray(values, np.float32)


def test_the_first_of_many_elements_are_no_repetition():
    (step,) = taps((8,), (7,), sizes=np.array([7]), **SCALED)

    assert step.copies
    assert step.repeats == 0


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("times", [1, 2, 5])
def test_elements_repeat_as_often_as_there_are_places_for_each(size, times):
    plan = taps((size,), (size * times,), sizes=np.array([size * times]), **SCALED)

    assert [step.repeats for step in plan] == ([] if times == 1 else [times])


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode", [m for m in COORDINATES if m != "tf_crop_and_resize"])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_what_repeats_at_the_size_of_the_sample_repeats_at_every_size(mode, rounding):
    given = {"coordinate_transformation_mode": mode, "nearest_mode": rounding}
    for times in range(2, 9):
        (sample,) = taps((SAMPLE,), (SAMPLE * times,), scales=scales(times), **given)
        for size in range(1, 120):
            (step,) = taps((size,), (size * times,), scales=scales(times), **given)

            assert not sample.repeats or step.repeats == times, (times, size)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_resize_that_keeps_every_size_copies(mode):
    assert taps((14, 14), (14, 14), scales=scales(1.05, 1.05), mode=mode) == []
    assert len(taps((14, 5), (14, 7), scales=scales(1.05, 1.5), mode=mode)) == 2


def test_an_antialiased_axis_that_keeps_its_size_is_copied():
    (step,) = taps((3, 5), (3, 2), scales=scales(1.3, 0.5), mode="linear", antialias=1)

    assert step.axis == 1


def test_corners_align_with_the_last_element():
    given = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    (step,) = taps((5,), (7,), scales=scales(1.5), **given)

    np.testing.assert_allclose(step.matrix() @ np.arange(5), np.arange(7) * 4 / 6, atol=1e-12)


CROP = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 1.5}
CASES = {
    "the first 7 of 8": Resizing((1, 1, 8), 18, None, (1, 1, 7), None, SCALED),
    "to one element": Resizing((2, 1, 2, 2), 18, None, (2, 1, 1, 1), None, SCALED),
    "one size is kept": Resizing((1, 1, 3, 4), 18, (1, 1, 1.3, 1.5), None, None,
                                 {"mode": "linear"}),
    "all sizes are kept": Resizing((1, 1, 4, 4), 18, (1, 1, 1.05, 1.2), None, None,
                                   {"mode": "cubic"}),
    "a fraction": Resizing((1, 1, 5, 5), 18, (1, 1, 1.5, 1.5), None, None,
                           {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
    "7 of 10": Resizing((1, 1, 10, 10), 18, (1, 1, 0.7, 0.7), None, None, {"mode": "linear"}),
    "to nothing": Resizing((1, 1, 1, 4), 18, (1, 1, 0.4, 2), None, None, {"mode": "linear"}),
    "a policy's region": Resizing((7, 6), 19, None, (14, 1), (-0.11, 0.26, 0.91, 0.79),
                                  {"mode": "linear", **CROP, "axes": [1, 0],
                                   "keep_aspect_ratio_policy": "not_smaller"}),
    "opset 10, larger and smaller": Resizing((3, 4), 10, (1.3, 0.5)),
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("open_", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("name", CASES)
def test_forward_and_both_gradients_are_right(tmp_path, name, open_):
    pytest.importorskip("onnxruntime")
    case = dataclasses.replace(CASES[name], symbolic=open_, computed=open_)

    assert examine(case, tmp_path).wrong == ()


@pytest.mark.parametrize("antialias", [0, 1])
def test_a_region_that_a_run_computes_keeps_the_aspect_ratio_or_says_why_not(tmp_path, antialias):
    pytest.importorskip("onnxruntime")
    case = CASES["a policy's region"]
    attributes = case.attributes | {"antialias": antialias}
    verdict = examine(dataclasses.replace(case, attributes=attributes, computed=True), tmp_path)

    assert verdict.wrong == ()
    assert (verdict.excluded == UNKNOWN) == antialias


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", [*range(12), 3214])
def test_any_resize_is_right(tmp_path, seed):
    pytest.importorskip("onnxruntime")

    assert examine(draw(np.random.default_rng(seed)), tmp_path).wrong == ()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 1000))
def test_any_of_many_resizes_is_right(tmp_path, seed):
    assert examine(draw(np.random.default_rng(seed)), tmp_path).wrong == ()


def test_a_symbolic_size_times_a_scale_is_that_of_onnxruntime(tmp_path):
    """0.7 is no fraction of small numbers in float32; as 7/10 it gives what the runtime gets."""
    path = tmp_path / "model.onnx"
    shapes = itertools.product((0.7, 0.9, 5 / 6, 1 / 3, 1.1), (3, 6, 10, 20, 30))
    for scale, size in shapes:
        onnx.save(model_of(Resizing((1, size), 18, (1, scale), symbolic=True)), path)
        x, one = np.zeros((1, size), np.float32), np.ones((1, 1), np.float32)
        y = gt.run(gt.load(path), {"x": x, "c": one}).outputs["y"]

        assert y.shape == Stock(path)({"x": x, "c": one}, "y").shape


def test_elements_of_none_are_refused_in_one_line():
    with pytest.raises(gt.UsageError, match="Resize makes 4 elements of none, along axis 0"):
        taps((0,), (4,), sizes=np.array([4]))

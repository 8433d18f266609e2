"""The shipped samples run within their plans, whatever the batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gradtool as gt
from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.measure import beside_arena, check_arena, measure
from gradtool.exec.parameters import parameters_of
from gradtool.exec.run import planned

SAMPLES = Path(__file__).parents[2] / "samples"
MOST_OUTSIDE = 256 * 1024
SLACK = 24 * 1024  # loop variables of longer loops, and what numpy buffers of longer lines


def feeds(name: str, times: int) -> dict[str, np.ndarray]:
    axis = 1 if name == "lstm" else 0
    with np.load(SAMPLES / f"{name}.npz", allow_pickle=False) as data:
        return {k: np.concatenate([data[k]] * times, axis=axis) for k in data.files}


@pytest.fixture(scope="module", params=["cnn", "transformer", "lstm"])
def sample(request):
    return request.param, gt.grad(gt.load(SAMPLES / f"{request.param}.onnx"))


def bound(sample, times):
    name, training = sample
    arrays = feeds(name, times)
    plan = planned(training.model, {"batch": arrays["labels"].shape[name == "lstm"]})
    executor = Executor(plan, open_device("cpu"), parameters_of(training.model))
    for key, array in arrays.items():
        executor.set_input(key, array)
    return executor


def test_a_step_stays_within_its_plan(sample):
    executor = bound(sample, 1)
    found = measure(executor, repeat=1)

    assert found.high_water <= executor.plan.peak < found.high_water + 64
    assert executor.plan.scratch == 0
    assert found.outside <= MOST_OUTSIDE
    assert found.retained <= 4096


def test_no_value_is_read_after_its_buffer_died(sample):
    check_arena(bound(sample, 1))


@pytest.mark.exhaustive
def test_what_a_step_takes_beside_the_arena_does_not_grow_with_the_batch(sample):
    one, eight = bound(sample, 1), bound(sample, 8)
    least, most = beside_arena(one)[0], beside_arena(eight)[0]

    assert eight.plan.peak > 3 * one.plan.peak
    assert most <= MOST_OUTSIDE
    assert most <= least + SLACK


def test_a_repeated_batch_has_the_same_loss(sample):
    losses = []
    for times in (1, 2):
        executor = bound(sample, times)
        executor.step()
        losses.append(float(executor.outputs()["loss"]))

    assert np.isfinite(losses[0])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)

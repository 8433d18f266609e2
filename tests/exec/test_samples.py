"""The shipped samples run within their plans, whatever the batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gradtool as gt

SAMPLES = Path(__file__).parents[2] / "samples"
MOST_OUTSIDE = 256 * 1024


def feeds(name: str, times: int) -> dict[str, np.ndarray]:
    axis = 1 if name == "lstm" else 0
    with np.load(SAMPLES / f"{name}.npz", allow_pickle=False) as data:
        return {k: np.concatenate([data[k]] * times, axis=axis) for k in data.files}


@pytest.fixture(scope="module", params=["cnn", "transformer", "lstm"])
def sample(request):
    return request.param, gt.grad(gt.load(SAMPLES / f"{request.param}.onnx"))


def measured(sample, times):
    name, training = sample
    result = gt.run(training, feeds(name, times), measure=True, check_arena=True)
    return result, result.measurement


def test_a_step_stays_within_its_plan(sample):
    result, found = measured(sample, 1)

    assert np.isfinite(result.loss)
    assert found.high_water <= result.plan.peak < found.high_water + 64
    assert result.plan.adapted == 0
    assert found.outside <= MOST_OUTSIDE
    assert found.retained <= 4096


def test_what_a_step_takes_beside_the_arena_does_not_grow_with_the_batch(sample):
    one, eight = (measured(sample, times) for times in (1, 8))

    assert eight[0].plan.peak > 4 * one[0].plan.peak / 2
    assert eight[1].outside <= MOST_OUTSIDE
    assert eight[1].outside <= one[1].outside + 16 * 1024


def test_a_repeated_batch_has_the_same_loss(sample):
    one, eight = (gt.run(sample[1], feeds(sample[0], times)) for times in (1, 8))

    assert eight.loss == pytest.approx(one.loss, rel=1e-5)

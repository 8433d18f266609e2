"""Learning rates that losses suggest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainings import examples, load

import gradtool as gt
from gradtool.errors import GradtoolError, UsageError
from gradtool.training.callbacks import Watcher
from gradtool.training.rate_sweep import LEAST, MOST, RateSweep, Sweeping, rate_of

DATA = examples(80)
OPTIONS = {"batch": 8, "optimizer": "sgd", "seed": 3}


class Seen(Watcher):
    def __init__(self):
        self.steps = []

    def stepped(self, step, epoch, loss, rate, planned):
        del step, epoch, planned
        self.steps.append((rate, loss))


def test_losses_are_those_of_steps_at_these_rates():
    seen = Seen()
    with gt.Trainer(load(), **OPTIONS) as trainer:
        found = trainer.find_lr(DATA, watcher=seen)
    with gt.Trainer(load(), **OPTIONS, steps=1, lr=LEAST) as trainer:
        first = trainer.fit(DATA).losses

    assert list(zip(found.rates, found.losses, strict=True)) == seen.steps
    assert found.rates[0] == LEAST
    assert found.losses[0] == first[0]
    ratios = np.diff(np.log(found.rates))
    np.testing.assert_allclose(ratios, np.log(MOST / LEAST) / 99)


def test_so_many_steps_are_taken_as_are_asked_for():
    with gt.Trainer(load(), **OPTIONS, steps=20) as trainer:
        found = trainer.find_lr(DATA)

    assert found.rates == pytest.approx([rate_of(n, 20) for n in range(20)])
    assert found.rates[-1] == pytest.approx(MOST)


def test_a_training_afterwards_begins_with_the_weights_of_the_model():
    plain, swept = (gt.Trainer(load(), **OPTIONS, steps=4, lr=0.1) for _ in range(2))
    with plain, swept:
        swept.find_lr(DATA)
        with pytest.raises(UsageError, match="nothing is trained yet"):
            _ = swept.session
        assert swept.fit(DATA).losses == plain.fit(DATA).losses
        for name, array in plain.weights().items():
            np.testing.assert_array_equal(swept.weights()[name], array)


@pytest.mark.parametrize("loss", ["1e6*mse:y", "1e5*ce:y"])
def test_a_loss_that_becomes_no_number_ends_the_sweep(loss):
    data = {**DATA, "labels": np.zeros((80, 3), np.float32)} if "mse" in loss else DATA
    with gt.Trainer(load(), **OPTIONS, loss=[loss]) as trainer:
        found = trainer.find_lr(data)

    assert found.diverged
    assert 0 < len(found.rates) < 100
    assert np.isfinite(found.losses).all()


def test_a_first_loss_that_is_no_number_is_an_error():
    with (
        gt.Trainer(load(), **OPTIONS, loss=["1e38*mse:y"]) as trainer,
        pytest.raises(GradtoolError),
    ):
        trainer.find_lr({**DATA, "labels": np.full((80, 3), 1e3, np.float32)})


def curve(losses):
    told = Sweeping()
    for step, loss in enumerate(losses, 1):
        told.stepped(step, 0, loss, rate_of(step - 1, len(losses)), 0)
    return told


def test_the_steepest_rate_lies_where_losses_fall_and_the_other_below_the_least():
    losses = [2.0] * 50 + [2.0 - 0.15 * n for n in range(13)] + [0.2 + n for n in range(37)]
    found = curve(losses).found(diverged=True)

    assert rate_of(48, 100) <= found.steepest <= rate_of(66, 100)
    lowest = found.rates[int(np.argmin(found.smooth))]
    assert found.least == pytest.approx(lowest / 10)


@pytest.mark.parametrize("losses", [[1.0 + n for n in range(100)], [1.0], []])
def test_losses_that_never_fall_suggest_nothing(losses):
    found = curve(losses).found(diverged=False)

    assert (found.steepest, found.least) == (None, None)


@given(st.lists(st.floats(0, 1e6), max_size=60))
def test_what_is_suggested_is_among_the_rates(losses):
    found = curve(losses).found(diverged=False)

    for rate in (found.steepest, found.least):
        assert rate is None or found.rates[0] / 10 <= rate <= found.rates[-1]
    assert (found.steepest is None) == (found.least is None)


def test_it_ends_at_four_times_the_least_smoothed_loss():
    told = curve([1.0] * 50)
    for step in range(51, 200):
        assert not told.stops()
        told.stepped(step, 0, 300.0, 1.0, 0)
        if told.smooth[-1] > 4 * min(told.smooth):
            break

    assert told.stops()
    assert isinstance(told.found(diverged=True), RateSweep)

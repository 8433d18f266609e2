"""A memory is kept to, by the step that is predicted to be quickest."""

import json
import re
import subprocess
import sys
from functools import cache

import numpy as np
import onnx
import pytest
from conftest import build, sampled
from hypothesis import given, settings
from hypothesis import strategies as st
from trainings import examples, load

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.native import library
from gradtool.training.callbacks import Watcher
from gradtool.training.fit import LEAST, _Waiting, parts_of

BATCH = 24
DATA = examples(48)


class Listening(Watcher):
    """Keeps what it is told of."""

    def __init__(self):
        self.fit, self.lines = None, []

    def fitted(self, fit):
        self.fit = fit

    def said(self, line):
        self.lines.append(line)


def trained(kind="dense", *, evaluates=False, **options):
    """The weights after two steps, the arena, the history and what was said."""
    more = {"evaluate": DATA} if evaluates else {}
    heard = Listening()
    with gt.Trainer(load(kind), batch=BATCH, steps=2, lr=0.1, **options) as trainer:
        history = trainer.fit(DATA, watcher=heard, **more)
        return trainer.session.values(), trainer.session.arena_bytes, history, heard


@cache
def peaks(**options):
    """By micro-batches, what keeping everything takes."""
    return {parts: trained(micro_batches=parts, **options)[1] for parts in parts_of(BATCH)}


def tried(memory, **how):
    """What a memory comes to; of one that is too small the bytes that are said to be the least."""
    try:
        return trained(memory=memory, **how), None
    except UsageError as error:
        said = re.search(r"no step of 24 examples fits: .* \((\d+) bytes\)", str(error))
        return None, int(said[1])


@cache
def least_of(optimizer, kernels="numpy", scale=None, ema=None, evaluates=None):
    """The bytes that are said to be the least."""
    how = {"optimizer": optimizer, "loss_scale": scale, "ema": ema, "evaluates": bool(evaluates)}
    how |= {"kernels": kernels} if kernels == "native" and library.status()[0] else {}
    return tried(1, **how)[1]


@pytest.mark.exhaustive
@given(
    st.integers(1, 1 << 15),
    st.sampled_from(["sgd", "adamw"]),
    st.sampled_from(["numpy", "native"]),
    st.sampled_from([None, "8"]),
    st.sampled_from([None, 0.5]),
    st.booleans(),
)
@settings(max_examples=2)
def test_what_runs_takes_what_was_planned_and_no_more(
    memory, optimizer, kernels, scale, ema, evaluates
):
    how = {"optimizer": optimizer, "loss_scale": scale, "ema": ema, "evaluates": evaluates}
    if kernels == "native" and library.status()[0] is not None:
        how["kernels"] = kernels
    least = least_of(optimizer, kernels, scale, ema, evaluates)
    found, said = tried(memory, **how)
    if found is None:
        assert memory < min(said, least)
        return
    values, arena, history, heard = found
    fit = history.fit
    assert heard.fit is fit
    assert arena == fit.chosen.peak <= memory
    quickest = min(each.time for each in fit.candidates if each.time is not None)
    assert fit.chosen.time == quickest
    parts = fit.chosen.micro_batches
    by_hand = trained(micro_batches=parts, **how)[0]
    assert values.keys() == by_hand.keys()
    assert all(value.tobytes() == by_hand[name].tobytes() for name, value in values.items())


def test_a_memory_that_is_enough_changes_nothing():
    found = trained(memory=1 << 30)[2].fit

    assert [each.plan for each in found.candidates] == ["keep"]
    assert found.chosen.micro_batches == 1


@pytest.mark.exhaustive
def test_the_least_that_was_found_fits():
    with pytest.raises(UsageError) as caught:
        trained(memory=1)
    rising = sorted(peaks().values())
    for bytes_ in (rising[0], rising[len(rising) // 2], rising[-1]):
        assert trained(memory=bytes_)[1] <= bytes_

    assert "the least that was found takes" in str(caught.value)


def test_statistics_of_parts_are_said():
    options = {"train_mode": True, "wrt": ["w1", "w2", "gain"]}
    whole, parts = (trained("normed", micro_batches=n, **options)[3].lines for n in (1, 2))

    assert not any("statistics of each micro-batch" in line for line in whole)
    assert sum("statistics of each micro-batch" in line for line in parts) == 1


@pytest.mark.sample(2)
@pytest.mark.parametrize("memory", sampled(["less", "kept", "least"], 3))
def test_the_plan_that_was_written_takes_the_same_steps(tmp_path, memory):
    heard, kept = Listening(), peaks(optimizer="sgd")
    room = {"kept": kept[1], "less": kept[1] - 64, "least": least_of("sgd")}
    how = {"optimizer": "sgd", "memory": room[memory]}
    with gt.Trainer(load(), batch=BATCH, steps=2, lr=0.1, **how) as trainer:
        trainer.fit(DATA, run=tmp_path / "run", watcher=heard)
        first, arena = trainer.session.values(), trainer.session.arena_bytes
    count = heard.fit.chosen.micro_batches
    assert json.loads((tmp_path / "run" / "plan.json").read_text())["name"] == heard.fit.chosen.plan
    again, other, *_ = trained(
        optimizer="sgd", plan=str(tmp_path / "run" / "plan.json"), micro_batches=count
    )

    assert other == arena
    assert all(np.array_equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize("other", [{"plan": "sqrt"}, {"micro_batches": 2}])
def test_what_a_memory_chooses_is_not_given(other):
    with pytest.raises(UsageError, match="memory chooses them"):
        gt.Trainer(load(), memory=1 << 20, **other)


@pytest.mark.exhaustive
@pytest.mark.parametrize("memory", [24, 48])
@pytest.mark.parametrize("batch", [64, 256])
def test_what_is_measured_is_no_more_than_was_asked_for(tmp_path, memory, batch):
    """In a process of its own, whose growth from the first step on is what its line says."""
    rng = np.random.default_rng(0)
    onnx.save(build(WIDE, a=normal(rng, 256, 2048), b=normal(rng, 2048, 8)), tmp_path / "w.onnx")
    labels = rng.integers(0, 8, 2 * batch)
    np.savez(tmp_path / "d.npz", x=normal(rng, 2 * batch, 256), labels=labels)
    words = ("train", "w.onnx", "--data", "d.npz", "--batch", batch, "--memory", f"{memory}MiB")
    done = subprocess.run(
        [sys.executable, "-m", "gradtool", *map(str, words), "--optimizer", "sgd"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    measured = re.findall(r"([\d.]+) MiB measured", done.stderr)
    assert measured
    assert all(float(each) <= memory for each in measured)


WIDE = """w (float[batch, 256] x) => (float[batch, 8] y) {
    h = MatMul (x, a)
    t = Tanh (h)
    u = Exp (t)
    v = Sin (u)
    y = MatMul (v, b)
}"""


def normal(rng, *shape):
    return (0.05 * rng.standard_normal(shape)).astype(np.float32)


@pytest.mark.parametrize("memory", [2 << 20, 3 << 20])
def test_a_short_training_is_searched_for_no_more_than_two_seconds(memory):
    data = {
        "image": np.zeros((32, 3, 32, 32), np.float32),
        "labels": np.arange(32, dtype=np.int64) % 10,
    }
    predicted, heard = [], Listening()
    spent = _Waiting.seconds
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            _Waiting, "seconds", lambda *given: predicted.append(spent(*given)) or predicted[-1]
        )
        how = {"batch": 32, "steps": 1, "memory": memory}
        with gt.Trainer("samples/cnn.onnx", **how) as trainer:
            trainer.fit(data, watcher=heard)

    assert predicted
    assert sum(predicted) <= LEAST
    for parts in heard.fit.left_out:
        assert any(str(parts) in line for line in heard.lines if "no time was left" in line)

"""Losses put together from parts of a batch; the sweep is benchmarks/losses_in_parts.py."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import build
from forked_ranks import supported
from loss_parts import CASES
from loss_parts_ways import WAYS, tried

import gradtool as gt
from gradtool.errors import GradtoolError, UsageError
from gradtool.training.callbacks import Watcher

RNG = np.random.default_rng(0)
DRAWN = [(name, list(WAYS)[index % len(WAYS)]) for index, name in enumerate(CASES)]
IGNORED = {"x": RNG.normal(size=(8, 4)).astype(np.float32), "labels": np.full(8, -100)}


class Said(Watcher):
    def __init__(self):
        self.lines = []

    def said(self, line):
        self.lines.append(line)


def model(loss=""):
    outputs = "float loss, " if loss else ""
    return gt.load(
        build(
            f"""net (float[batch, 4] x{", int64[batch] labels" if loss else ""})
            => ({outputs}float[batch, 3] y) {{ y = MatMul (x, w) {loss} }}""",
            w=np.ones((4, 3), np.float32),
        )
    )


@supported
@pytest.mark.extra
@pytest.mark.parametrize(("name", "way"), DRAWN)
def test_a_loss_in_parts_is_that_of_the_whole_batch_or_refused(name, way):
    pytest.importorskip("torch")

    assert tried(name, way, 0) == ("refused" if CASES[name].mixes else "same")


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("loss", ["ce:y", "ce:y@smoothing=0.1", "nll:y"])
def test_a_batch_without_any_label_adds_nothing(parts, loss):
    given = {"optimizer": "sgd", "lr": 0.1, "batch": 8, "steps": 1, "loss": loss}
    with gt.Trainer(model(), micro_batches=parts, **given) as trainer:
        history = trainer.fit(IGNORED)
        values = trainer.session.values()

    assert list(history.losses) == [0.0]
    np.testing.assert_array_equal(values["w"], np.ones((4, 3)))


def test_a_loss_of_the_file_that_is_none_for_want_of_labels_says_so():
    made = model(
        """zero = Constant <value_int = 0> () one = Constant <value_ints = [1]> ()
        m = GreaterOrEqual (labels, zero) f = Cast <to = 1> (m) s = ReduceSum <keepdims = 0> (f)
        r = ReduceMean <keepdims = 0> (y, one) q = Mul (r, f)
        n = ReduceSum <keepdims = 0> (q) loss = Div (n, s)"""
    )
    with (
        gt.Trainer(made, batch=8, steps=1) as trainer,
        pytest.raises(GradtoolError, match="nothing counts in this batch"),
    ):
        trainer.fit(IGNORED)


def tokens(loss, names=("ids",)):
    arrays = {"table": RNG.normal(size=(7, 5)).astype(np.float32)}
    arrays["w"] = RNG.normal(size=(5, 7)).astype(np.float32)
    text = """net (int64[batch, 6] ids) => (float[batch, 6, 7] y) {
        e = Gather (table, ids) y = MatMul (e, w) }"""
    ids = RNG.integers(0, 7, (8, 6))
    watcher = Said()
    with gt.Trainer(
        gt.load(build(text, **arrays)), loss=loss, batch=4, steps=1, labels=names[-1],
    ) as trainer:  # fmt: skip
        given = {"ids": ids, names[-1]: ids}
        history = trainer.fit(given, evaluate=given, watcher=watcher)
    return watcher.lines, history


@pytest.mark.parametrize(("loss", "warned"), [("ce:y", True), ("ce:y@shift=1", False)])
def test_labels_that_are_those_of_an_input_are_said_once(loss, warned):
    lines, _ = tokens(loss, ("ids", "targets"))

    assert sum("learns to repeat its own" in line for line in lines) == warned


def test_labels_that_are_an_input_by_name_are_said_by_grad():
    made = gt.load(build("""net (int64[batch, 6] ids) => (float[batch, 6, 7] y) {
        e = Gather (table, ids) y = MatMul (e, w) }""", table=np.ones((7, 5), np.float32),
        w=np.ones((5, 7), np.float32)))  # fmt: skip
    told = gt.grad(made, loss="ce:y", labels="ids").warnings
    shifted = gt.grad(made, loss="ce:y@shift=1", labels="ids").warnings

    assert sum("learns to repeat its own" in line for line in told) == 1
    assert not any("learns to repeat its own" in line for line in shifted)


def test_a_session_of_parts_evaluates_the_loss_of_the_batch_that_it_is_given():
    given = {"x": IGNORED["x"], "labels": np.array([0, -100, 2, -100, 1, -100, -100, 0])}
    options = {"loss": "ce:y", "optimizer": "sgd", "lr": 0.0, "batch": 8, "steps": 1}
    with gt.Trainer(model(), micro_batches=4, **options) as trainer:
        history = trainer.fit(given)

        assert trainer.session.evaluate(given).loss == pytest.approx(history.losses[0])


def test_a_memory_computes_a_loss_that_mixes_examples_in_one_part():
    made = model("s = ReduceMean <keepdims = 0> (y) loss = Mul (s, s) i = Identity (labels)")
    watcher = Said()
    with gt.Trainer(made, batch=8, steps=1, memory=1 << 20) as trainer:
        history = trainer.fit(IGNORED, watcher=watcher)

    assert [each.micro_batches for each in history.fit.candidates] == [1]
    assert any("mixes the examples" in line for line in watcher.lines)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ("ce:y@ignor=1", r"no setting 'ignor'.*did you mean 'ignore'"),
        ("ce:y@ignore=x", "write @ignore=N"),
        ("ce:y@ignore=1,ignore=2", "ignore is given twice"),
        ("ce:y@smoothing=2", "smoothing needs a number from 0 to 1"),
        ("ce:y@weight=nowhere", "neither an initializer of the model nor a .npy"),
        ("ce:y@weight=nowhere.npy", "No such file"),
        ("ce:y@weight=w", "a number for each of 3 classes"),
        ("ce:y@shift=-1", "shift needs a number of places"),
        ("ce:y@soft=2", "write soft=1"),
        ("ce:y@soft=1,ignore=0", "cannot be combined with ignore"),
        ("nll:y@smoothing=0.1", "takes no smoothing"),
        ("mse:y@ignore=1", "has no classes, and no ignore"),
    ],
)
def test_settings_that_cannot_be_are_one_line(loss, said):
    with pytest.raises(UsageError, match=said) as error:
        gt.grad(model(), loss=loss)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_weights_of_classes_come_from_a_file(tmp_path, suffix):
    path = tmp_path / f"weights{suffix}"
    weights = np.array([1, 2, 4], np.float64)
    np.save(path, weights) if suffix == ".npy" else np.savez(path, weights)
    labels = np.array([0, 1, 2, 2, 0, 1, -100, 0])
    found = gt.run(gt.grad(model(), loss=f"ce:y@weight={path}"), {**IGNORED, "labels": labels})

    assert found.loss == pytest.approx(np.log(3))

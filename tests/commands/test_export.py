"""The weights of a training that was interrupted: `gradtool train … --resume --export`."""

import json

import numpy as np
import pytest
from conftest import build
from trainings import examples, proto, weights

import gradtool as gt

LINE = ("net.onnx", "--data", "data.npz", "--batch", "8", "--lr", "0.3", "--epochs", "4")
STOPS = """import os, signal
import gradtool as gt

class At(gt.Watcher):
    def stepped(self, step, epoch, loss, rate, planned):
        if step == 9:
            os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.fixture
def interrupted(run, model, tmp_path):
    """Begin a training that a signal ends after step 9."""
    np.savez(tmp_path / "data.npz", **examples(50))
    model(proto(), "net.onnx")
    (tmp_path / "stops_here.py").write_text(STOPS)

    def begin(*more):
        assert run("train", *LINE, *more, "--callback", "stops_here:At").code == 130
        assert not (tmp_path / "net.trained.onnx").exists()

    return begin


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def arrays(path):
    return {n: v.const_value.numpy() for n, v in gt.load(path).graph.initializers.items()}


@pytest.mark.parametrize(
    ("more", "step"),
    [((), 9), (("--eval", "data.npz"), 6), (("--eval", "data.npz", "--result", "last"), 9)],
)
def test_its_weights_are_written_and_the_run_stays_as_it_is(run, interrupted, tmp_path, more, step):
    interrupted(*more)
    before = content(tmp_path / "net.train")
    done = run("train", *LINE, *more, "--resume", "--export", "--format", "json")
    document = json.loads(done.out)

    assert done.code == 0, done.err
    assert content(tmp_path / "net.train") == before
    assert (document["ended"], document["steps"], document["loss"]) == ("interrupted", 9, None)
    assert document["written"]["trained"]["step"] == step
    with gt.Trainer(str(tmp_path / "net.onnx"), batch=8, lr=0.3, steps=step) as trainer:
        trainer.fit(examples(50))
        expected = trainer.weights()
    found = arrays(tmp_path / "net.trained.onnx")
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_means_and_adapters_are_written_too(run, interrupted, tmp_path):
    more = ("--ema", "0.5", "--lora", "2", "--lora-adapter")
    interrupted(*more)
    done = run("train", *LINE, *more, "--resume", "--export")

    assert done.code == 0, done.err
    files = ["net.ema.onnx", "net.lora.onnx", "net.lora.onnx_adapter", "net.trained.onnx"]
    assert sorted(path.name for path in tmp_path.glob("net.*.onnx*")) == files


def test_it_goes_on_afterwards_as_if_nothing_was_written(run, interrupted, tmp_path):
    interrupted()
    run("train", *LINE, "--resume", "--export")
    assert run("train", *LINE, "--resume", "--force").code == 0
    assert run("train", *LINE, "--run", "whole", "-o", "whole.onnx").code == 0

    assert (tmp_path / "net.trained.onnx").read_bytes() == (tmp_path / "whole.onnx").read_bytes()


def test_what_cannot_be_exported_is_one_line(run, model, tmp_path):
    np.savez(tmp_path / "data.npz", **examples(50))
    model(build("n (float[b, 6] x) => (float[b, 3] y) { y = MatMul (x, w) }",
                w=weights()["w1"][:, :3]), "net.onnx")  # fmt: skip
    alone = run("train", *LINE, "--export")
    absent = run("train", *LINE, "--resume", "--export")

    assert (alone.code, absent.code) == (2, 2)
    assert "--export needs --resume" in alone.err
    assert "no checkpoint yet: there are no weights to export" in absent.err
    assert not (tmp_path / "net.train").exists()

"""Whatever a training can be refused for before its first step is refused there."""

import json
import os
import re

import numpy as np
import pytest
from conftest import sampled
from trainings import examples, proto

TRAIN = ("train", "net.onnx", "--data", "data.npz", "--eval", "test.npz", "--batch", "8",
         "--steps", "4", "--every", "2", "--run", "run")  # fmt: skip
CODE = """
import numpy as np
def two(outputs, batch): return 1.0
def one(outputs): return 1.0
def three(outputs, batch, more): return 1.0
def fails(outputs, batch): raise RuntimeError("no")
def text(outputs, batch): return "good"
def vector(outputs, batch): return np.ones(3)
def nothing(outputs, batch): return None
def missing(outputs, batch): return float(outputs["no such output"].mean())
value = 3
def data(epoch, more): return []
def empty(): return iter(())
def numbers(): return [1, 2]
def late(epoch):
    raise RuntimeError("no data")
"""
METRICS = {
    "mae:nothing": "no output 'nothing'",
    "accuracy:y:nothing": "no labels 'nothing'",
    "accuracy:nothing": "no output 'nothing'",
    "top-3": "there are 3 classes",
    "top-0": "no metric",
    "mae": "no output has the shape",
    "perplexit": "did you mean",
    "no_such_module:f": "no module 'no_such_module'",
    "mine:no": "no function 'no'",
    "mine:value": "no function 'value'",
    "mine:one": "takes",
    "mine:three": "takes",
    "mine:fails": "raised RuntimeError: no",
    "mine:text": "'good'",
    "mine:vector": "no number",
    "mine:nothing": "no number",
    "mine:missing": "raised KeyError",
}
DATA = [
    "no.npz",
    "more.npz",
    "wide.npz",
    "text.npz",
    "far.npz",
    "none.npz",
    "nan.npz",
    "mine:data",
    "mine:empty",
    "mine:numbers",
    "mine:late",
]
VALUES = {
    "--eval": [*DATA, "last.npz"],
    "--data": DATA,
    "--metric": list(METRICS),
    "--ema": ["1", "-0.1", "1.5", "nan", "x"],
    "--log": ["tensorboard:net.onnx", "tensorboard:readonly/events", "tensorboardd", "wandb:", ""],
    "--callback": ["no:Watcher", "mine:no", "mine:value", "mine:one", "mine:fails", "mine", ""],
    "--lora-adapter": [True],
    "--trace": ["no/trace.json", "readonly/trace.json", "folder", "net.onnx", "out.onnx"],
    "-o": ["no/out.onnx", "readonly/out.onnx", "folder", "data.npz", "/dev/null", "", "-"],
    "--run": ["net.onnx", "readonly/run", "net.onnx/run", ""],
    "--map": ["x", "x=no", "w1=x", "x="],
    "--split": ["0%", "100%", "x", "-1", "24", "10%%", ""],
    "--categories": ["x", "nothing*"],
    "--image-size": ["0", "x", "8"],
    "--image-crop": ["8"],
    "--image-mean": ["x", "1,", "nan"],
    "--image-std": ["0", "-1", "inf"],
    "--flip": [True],
    "--random-crop": ["-1", "x", "2"],
    "--seconds": ["0", "-1", "1"],
    "--workers": ["0", "x"],
    "--schedule": ["linea", "linear@end=x", "step@every=0", "cosine@no=1", "one-cycle@rise=2"],
    "--lr": ["-1", "nan", "inf", "x"],
    "--warmup": ["-1", "x"],
    "--loss-scale": ["0", "-1", "nan", "x", "inf"],
    "--micro-batches": ["3", "0", "16"],
    "--lengths": ["x", "0", "8,x", "-1"],
    "--memory": ["1KiB", "x", "0"],
    "--plan": ["no.json", "net.onnx", "kee", "data.json"],
    "--patience": ["0"],
    "--checkpoint-every": ["0"],
    "--keep": ["0"],
    "--every": ["0"],
    "--seed": ["-1"],
    "--optimizer": ["adamww"],
    "--optimizer-option": ["beta1=x", "nothing=1", "beta1=2", "beta1"],
    "--clip-norm": ["-1", "nan", "x"],
    "--clip-value": ["-1", "x"],
    "--no-decay": ["nothing.*", "@no.txt"],
    "--lr-scale": ["w1", "nothing=2", "w1=x", "w1=-1"],
    "--wrt": ["nothing.*", "labels", "@no.txt"],
    "--no-grad": ["nothing.*", "*"],
    "--loss": ["ce:nothing", "cee", "sum:nothing", "ce:y@smoothing=2", "ce:y@weight=no.npz"],
    "--labels": ["y=", "x"],
    "--lora": ["0", "x"],
    "--device": ["cudaa", "tpu"],
    "--dim": ["batch", "nothing=1", "batch=x"],
    "--shape": ["nothing=1", "x=2x9x9"],
    "--set": ["nothing=1", "x=1"],
}
AS_ROOT = os.name != "nt" and os.geteuid() == 0  # who may write anywhere
CASES = [(flag, value) for flag, values in VALUES.items() for value in values
         if not (AS_ROOT and str(value).startswith("readonly"))]  # fmt: skip


@pytest.fixture
def folder(model, tmp_path, monkeypatch):
    good = examples(24)
    arrays = {
        "data": good,
        "test": examples(21, 5),
        "more": {"x": good["x"]},
        "wide": {**good, "x": np.ones((24, 99), np.float32)},
        "text": {**good, "x": np.full((24, 4), "a")},
        "far": {**good, "labels": np.full(24, 77)},
        "none": {name: array[:0] for name, array in good.items()},
        "nan": {**good, "x": np.full_like(good["x"], np.nan)},
        "last": {**good, "labels": np.r_[good["labels"][:-1], 77]},
    }
    for name, each in arrays.items():
        np.savez(tmp_path / f"{name}.npz", **each)
    (tmp_path / "mine.py").write_text(CODE)
    (tmp_path / "data.json").write_text("{}")
    (tmp_path / "folder").mkdir()
    (tmp_path / "readonly").mkdir()
    (tmp_path / "readonly").chmod(0o555)
    monkeypatch.delitem(__import__("sys").modules, "mine", raising=False)
    model(proto(), "net.onnx")
    return tmp_path


def without(words, flag):
    """A command line without a flag and its value."""
    if flag not in words:
        return words
    at = words.index(flag)
    return (*words[:at], *words[at + 2 :])


@pytest.mark.sample(3)
@pytest.mark.parametrize(("flag", "value"), sampled(CASES, 8, by=lambda case: case[0]))
def test_a_bad_value_is_refused_before_the_first_step(run, folder, flag, value):
    words = (*without(TRAIN, flag), flag, *([] if value is True else [value]))
    outcome = run(*words)

    last = outcome.err.splitlines()[-1]
    assert outcome.code in (2, 3, 4), outcome.err
    assert "Traceback" not in outcome.err
    assert re.match("gradtool: |Error: ", last)
    journal = folder / "run" / "metrics.jsonl"
    steps = journal.read_text().splitlines() if journal.exists() else []
    assert [json.loads(line) for line in steps] == []


@pytest.mark.parametrize("metric", sampled(METRICS, 4))
def test_a_metric_is_tried_before_the_first_step(run, folder, metric):
    outcome = run(*TRAIN, "--metric", metric)

    assert (outcome.code, METRICS[metric] in outcome.err) == (2, True), outcome.err
    assert not (folder / "run" / "step-00000002.json").exists()

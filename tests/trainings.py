"""Small models and data to train on."""

from __future__ import annotations

import itertools
import json

import numpy as np
from conftest import build

import gradtool as gt
from gradtool.graph.optimizers import UPDATING
from gradtool.native import library
from gradtool.training.callbacks import Watcher

NATIVE = "numpy" if library.status()[0] is None else "native"

DENSE = """net (float[batch, 6] x) => (float[batch, 3] y) {
    h = MatMul (x, w1)
    s = Add (h, b1)
    r = Tanh (s)
    m = MatMul (r, w2)
    y = Add (m, b2)
}"""
NORMED = """net (float[batch, 6] x) => (float[batch, 3] y) {
    h = MatMul (x, w1)
    s = Add (h, b1)
    n = BatchNormalization (s, gain, shift, mean, var)
    r = Relu (n)
    d = Dropout (r, half)
    m = MatMul (d, w2)
    y = Add (m, b2)
}"""


def weights(kind="dense"):
    rng = np.random.default_rng(1)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    found = {"w1": normal(6, 5), "b1": normal(5), "w2": normal(5, 3), "b2": normal(3)}
    if kind == "normed":
        found |= {
            "gain": 1 + normal(5), "shift": normal(5), "mean": np.zeros(5, np.float32),
            "var": np.ones(5, np.float32), "half": np.float32(0.5),
        }  # fmt: skip
    return found


def proto(kind="dense"):
    return build({"dense": DENSE, "normed": NORMED}[kind], **weights(kind))


def examples(count=50, seed=0):
    """Points of three classes, that a plane tells apart but for some."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 6)).astype(np.float32)
    scores = x @ np.random.default_rng(9).standard_normal((6, 3))
    return {"x": x, "labels": scores.argmax(1).astype(np.int64)}


def stream(epoch, seed):
    """Three batches an epoch, other ones each."""
    for number in range(3):
        yield examples(8, seed * 1000 + epoch * 10 + number)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def recipes(rng):
    """Options of a training, drawn."""
    while True:
        kind = str(rng.choice(["dense", "normed"]))
        micro = int(rng.choice([1, 1, 2, 4]))
        yield kind, {
            "optimizer": str(rng.choice(UPDATING)),
            "lr": float(rng.choice([0.01, 0.1])),
            "schedule": str(rng.choice(["constant", "cosine", "step@every=3", "one-cycle"])),
            "warmup": int(rng.choice([0, 3])),
            "batch": 8,
            "micro_batches": micro,
            "loss_scale": rng.choice(np.array([None, 8, "dynamic"], object)),
            "steps": int(rng.integers(8, 20)),
            "seed": int(rng.integers(0, 5)),
            "shuffle": bool(rng.random() < 0.7),
            "ema": [None, 0.9][int(rng.random() < 0.4)],
            "every": [None, 3][int(rng.random() < 0.5)],
            "checkpoint_every": [None, 2][int(rng.random() < 0.5)],
            "patience": [None, 2][int(rng.random() < 0.3)],
            "plan": str(rng.choice(["keep", "mirror"])),
            "train_mode": kind == "normed",
            "clip_norm": [None, 0.5][int(rng.random() < 0.4)],
            "lora": [None, 2][int(rng.random() < 0.3)],
            "lr_scale": [(), ("*w1*=0.5",)][int(rng.random() < 0.4)],
            "kernels": ["numpy", NATIVE][int(rng.random() < 0.4)],
        }  # fmt: skip


def drawn(count, seed=0):
    return list(itertools.islice(recipes(np.random.default_rng(seed)), count))


def load(kind="dense"):
    return gt.load(proto(kind))


class Stopping(Watcher):
    """Asks to stop after a step."""

    def __init__(self, step):
        self.step, self.now = step, 0

    def stepped(self, step, *_):
        self.now = step

    def stops(self):
        return self.now == self.step

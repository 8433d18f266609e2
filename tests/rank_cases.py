"""Trainings that come to the same on any number of ranks, and the numbers that they come to."""

from __future__ import annotations

import itertools

import numpy as np
from conftest import build
from trainings import examples, weights

import gradtool as gt

BODY = """net (double[{batch}, 6] x) => (double[{batch}, 3] y) {{
    h = MatMul (x, w1)
    s = Add (h, b1)
    r = {activation} (s)
    d = Dropout{seed} (r, half)
    m = MatMul (d, w2)
    y = Add (m, b2)
}}"""
DATA, TEST = examples(80), examples(21, 5)
for each in (DATA, TEST):
    each["x"] = each["x"].astype(np.float64)


def model(rng, batch="batch"):
    """A small network in float64, with a dropout that has a seed or not."""
    seed = str(rng.choice(["", " <seed = 7>"]))
    activation = str(rng.choice(["Tanh", "Sigmoid", "Relu"]))
    arrays = {name: array.astype(np.float64) for name, array in weights().items()}
    half = np.float32(rng.choice([0.0, 0.4]))
    body = BODY.format(batch=batch, activation=activation, seed=seed)
    return gt.load(build(body, **arrays, half=half))


def recipes(ranks, seed=0):
    """Models and options of `Trainer`, drawn: batches that ranks divide."""
    rng = np.random.default_rng([seed, ranks])
    while True:
        parts = int(rng.choice([1, 1, 2]))
        fixed = bool(rng.random() < 0.3)
        yield model(rng, 8 // ranks // parts if fixed else "batch"), {
            "optimizer": str(rng.choice(["sgd", "momentum", "adamw"])),
            "lr": 0.05,
            "batch": 8,
            "micro_batches": 1 if fixed else parts,
            "loss_scale": rng.choice(np.array([None, 8, "dynamic"], object)),
            "loss": str(rng.choice(["ce", "ce", "sum:y"])),
            "steps": 50,
            "seed": int(rng.integers(5)),
            "ema": [None, 0.9][int(rng.random() < 0.3)],
            "every": 20,
            "plan": str(rng.choice(["keep", "mirror"])),
            "train_mode": True,
        }  # fmt: skip


def drawn(ranks, case, seed=0):
    """A model of its own, and options; and options of one process that come to the same."""
    model, options = next(itertools.islice(recipes(ranks, seed), case, None))
    batch = model.graph.inputs[0].shape[0]
    parts = 8 // batch if isinstance(batch, int) else options["micro_batches"]
    return model, options, options | {"micro_batches": parts}


def trained(model, options, *group, **how):
    """Losses, evaluations, and what was trained, by name."""
    with gt.Trainer(model, **options) as trainer:
        history = trainer.fit(
            DATA, evaluate=TEST, **how, **dict(zip(["group"], group, strict=False))
        )
        return history.losses, history.evaluations, trainer.session.values()


def difference(found, expected):
    """The worst relative difference of losses, of evaluations and of arrays."""
    pairs = [(np.array(found[0]), np.array(expected[0]))]
    for (step, numbers), (at, others) in zip(found[1], expected[1], strict=True):
        assert step == at
        pairs += [(np.array(numbers[name]), np.array(others[name])) for name in others]
    pairs += [(found[2][name], expected[2][name]) for name in found[2] if name in expected[2]]
    return max(
        float(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-3)) for a, b in pairs if a.size
    )

"""Networks that are hard to cut, and options of trainings in stages, drawn."""

from __future__ import annotations

import itertools

import numpy as np
from conftest import build

import gradtool as gt

WIDTH = 6
HEAD = "net (double[{batch}, 6] x) => (double[{batch}, 3] y) {{"


def network(rng, *, norms, batch="batch"):
    """A chain of blocks in float64: some reach back over several others, some share a matrix."""
    lines, arrays, before = [], {}, ["x"]

    def parameter(name, *shape):
        arrays[name] = rng.standard_normal(shape) / np.sqrt(shape[0])
        return name

    def line(name, text):
        lines.append(f"    {name} = {text}")
        before.append(name)

    gate = "Sigmoid (x)" if rng.random() < 0.5 else "Softmax (x)"
    lines.append(f"    gate = {gate}")
    shared = None
    for i in range(int(rng.integers(4, 7))):
        if shared is None or rng.random() < 0.7:
            matrix = parameter(f"w{i}", WIDTH, WIDTH)
        else:
            matrix = shared
        shared = matrix if shared is None or rng.random() < 0.3 else shared
        line(f"m{i}", f"MatMul ({before[-1]}, {matrix})")
        line(f"s{i}", f"Add (m{i}, {parameter(f'b{i}', WIDTH)})")
        line(f"a{i}", f"{rng.choice(['Tanh', 'Sigmoid', 'Relu'])} (s{i})")
        kind = rng.choice(["skip", "gate", "drop", "norm" if norms else "skip", "view"])
        if kind == "skip":
            line(f"k{i}", f"Add (a{i}, {before[int(rng.integers(len(before)))]})")
        elif kind == "gate":
            line(f"k{i}", f"Mul (a{i}, gate)")
        elif kind == "drop":
            arrays["half"] = np.float32(0.4)
            line(f"k{i}", f"Dropout (a{i}, half)")
        elif kind == "view":
            lines.append(f"    k{i} = Transpose <perm = [1, 0]> (a{i})")
            line(f"l{i}", f"Transpose <perm = [1, 0]> (k{i})")
        else:
            arrays |= {f"mean{i}": np.zeros(WIDTH), f"var{i}": np.ones(WIDTH)}
            scale, shift = parameter(f"g{i}", WIDTH), parameter(f"h{i}", WIDTH)
            line(f"k{i}", f"BatchNormalization (a{i}, {scale}, {shift}, mean{i}, var{i})")
    line("last", f"MatMul ({before[-1]}, {parameter('wide', WIDTH, 3)})")
    line("y", f"Add (last, {parameter('bias', 3)})")
    text = "\n".join([HEAD.format(batch=batch), *lines, "}"])
    return gt.load(build(text, **arrays))


def recipes(ranks, stages, seed=0):
    """Models and options of `Trainer`, drawn."""
    rng = np.random.default_rng([seed, ranks, stages])
    replicas = ranks // stages
    while True:
        parts = int(rng.choice([each for each in (1, 2, 4, 8) if not 8 % (each * replicas)]))
        norms = bool(rng.random() < 0.5)
        fixed = bool(rng.random() < 0.3)
        batch = 8 // parts // replicas if fixed else "batch"
        yield network(rng, norms=norms, batch=batch), {
            "optimizer": str(rng.choice(["sgd", "momentum", "adamw", "lamb"])),
            "lr": 0.02,
            "batch": 8,
            "micro_batches": parts,
            "loss_scale": rng.choice(np.array([None, 8, "dynamic"], object)),
            "clip_norm": [None, 0.5][int(rng.random() < 0.4)],
            "lr_scale": [(), ("b*=0.5",)][int(rng.random() < 0.4)],
            "loss": str(rng.choice(["ce", "ce", "sum:y"])),
            "steps": 50,
            "seed": int(rng.integers(5)),
            "ema": [None, 0.9][int(rng.random() < 0.3)],
            "every": 20,
            "plan": str(rng.choice(["keep", "mirror"])),
            "train_mode": True,
            "sync_batchnorm": norms and replicas > 1,
        }  # fmt: skip


def drawn(ranks, stages, case, seed=0):
    """A model of its own, and options; and those of one process that come to the same."""
    model, options = next(itertools.islice(recipes(ranks, stages, seed), case, None))
    normed = any(node.op_type == "BatchNormalization" for node in model.graph)
    options |= {"sync_batchnorm": options["sync_batchnorm"] and normed}
    batch = model.graph.inputs[0].shape[0]
    alone = options | {"sync_batchnorm": False}
    if isinstance(batch, int):
        alone = alone | {"micro_batches": 8 // batch}
    return model, options | {"stages": stages}, alone

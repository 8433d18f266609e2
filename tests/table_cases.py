"""Trainings of embedding tables, drawn: what ranks that have rows of them come to as well."""

from __future__ import annotations

import itertools

import numpy as np
from conftest import build

import gradtool as gt

EXAMPLES = 48


def cases(seed=0):
    """Models with tables that Gather reads, once or twice, and options by which they train."""
    rng = np.random.default_rng(seed)
    while True:
        heights = [int(rng.integers(4, 40)) for _ in range(int(rng.integers(1, 4)))]
        width, few = int(rng.integers(1, 6)), int(rng.integers(1, 6))
        counts = [int(rng.integers(1, 4)) for _ in heights]
        twice = bool(rng.random() < 0.4)
        inputs, lines, terms, data = [], [], [], {}
        arrays = {"w": rng.standard_normal((width, 3)), "axes": np.array([1])}
        for number, (height, count) in enumerate(zip(heights, counts, strict=True)):
            arrays[f"table{number}"] = rng.standard_normal((height, width))
            reads = 2 if twice and not number else 1
            for turn in range(reads):
                name, kind = f"i{number}{turn}", str(rng.choice(["int32", "int64"]))
                inputs.append(f"{kind}[batch, {count}] {name}")
                lines.append(f"r{name} = Gather (table{number}, {name})")
                lines.append(f"s{name} = ReduceSum <keepdims = 0> (r{name}, axes)")
                terms.append(f"s{name}")
                most = min(height, few + number)  # few rows: many are read by several ranks
                data[name] = rng.integers(-most, most, (EXAMPLES, count)).astype(kind)
        body = f"""net ({", ".join(inputs)}) => (double[batch, 3] y) {{
            {" ".join(lines)}
            h = Sum ({", ".join(terms)})
            t = Tanh (h)
            y = MatMul (t, w)
        }}"""
        data["labels"] = rng.integers(0, 3, EXAMPLES)
        optimizer = str(rng.choice(["sgd", "adagrad", "adam", "adamw"]))
        options = {
            "optimizer": optimizer, "lr": 0.05, "batch": 8, "steps": 50, "sparse": True,
            "no_decay": ["table*"] if optimizer == "adamw" else [], "seed": int(rng.integers(5)),
            "ema": [None, 0.9][int(rng.random() < 0.3)], "every": 20,
            "clip_value": [None, 0.05][int(rng.random() < 0.2)],
        }  # fmt: skip
        several = {
            "shard_tables": [["table*"], ["table0"]][int(rng.random() < 0.3)],
            "micro_batches": int(rng.choice([1, 1, 2])),
            "loss_scale": rng.choice(np.array([None, 8, "dynamic"], object)),
            "shard": str(rng.choice(["none", "optimizer", "gradients"])),
            "plan": str(rng.choice(["keep", "mirror"])),
        }
        if several["shard_tables"] == ["table0"] or options["clip_value"]:
            # What is not by rows on ranks moves rows without a gradient, but not by these; a limit
            # is of a whole gradient, which parts of a batch sum.
            options["optimizer"] = "adagrad" if optimizer != "sgd" else "sgd"
            options["no_decay"] = []
        yield build(body, **arrays), data, options, several


def drawn(case, seed=0):
    return next(itertools.islice(cases(seed), case, None))


def trained(model, data, options, *group, **how):
    """Losses, evaluations, and what is trained as it is written."""
    with gt.Trainer(gt.load(model), **options) as trainer:
        history = trainer.fit(
            data, evaluate={n: a[:21] for n, a in data.items()}, **how,
            **dict(zip(["group"], group, strict=False)),
        )  # fmt: skip
        kept = trainer._values(best=False)
        held = {n: kept[n].copy() for n in gt.load(model).graph.initializers if n in kept}
        return history.losses, history.evaluations, held, trainer.session.arena_bytes

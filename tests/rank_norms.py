"""Networks with BatchNormalization, and what training them on several ranks comes to."""

from __future__ import annotations

import numpy as np
from conftest import build

import gradtool as gt

CHANNELS = (3, 4, 5)


def network(seed):
    """Two layers with BatchNormalization behind each, of vectors, lines or images."""
    rng = np.random.default_rng(seed)
    space = [(), (5,), (4, 3)][int(rng.integers(3))]
    first, second, third = CHANNELS
    sizes = ", ".join(map(str, space))
    x = f"batch, {first}{', ' * bool(space)}{sizes}"
    kernel = (3,) * len(space)
    pads = f" <pads = {[1] * 2 * len(space)}>" if space else ""
    layer = "Conv" + pads if space else "Gemm"
    axes = list(range(2, 2 + len(space)))
    pooled = "p = ReduceMean <keepdims = 0> (t, axes)" if space else "p = Identity (t)"
    norms = [
        f"BatchNormalization <epsilon = {rng.choice([1e-5, 1e-3]):f}, "
        f"momentum = {rng.choice([0.9, 0.5]):f}>"
        for _ in range(2)
    ]
    body = f"""net (double[{x}] x) => (double[batch, 3] y) {{
        a = {layer} (x, w1)
        b = {norms[0]} (a, s1, b1, m1, v1)
        c = {rng.choice(["Tanh", "Relu", "Sigmoid"])} (b)
        d = {layer} (c, w2)
        e = {norms[1]} (d, s2, b2, m2, v2)
        t = {rng.choice(["Tanh", "Relu", "Identity"])} (e)
        {pooled}
        y = MatMul (p, w3)
    }}"""
    shapes = {
        "w1": (second, first, *kernel) if space else (first, second),
        "w2": (third, second, *kernel) if space else (second, third),
        "w3": (third, 3),
        "s1": (second,), "b1": (second,), "m1": (second,), "s2": (third,), "b2": (third,),
        "m2": (third,),
    }  # fmt: skip
    arrays = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    arrays |= {"v1": rng.random(second) + 0.5, "v2": rng.random(third) + 0.5}
    if space:
        arrays["axes"] = np.array(axes, np.int64)
    data = {
        "x": rng.standard_normal((48, first, *space)) * rng.uniform(0.5, 3) + rng.normal(),
        "labels": rng.integers(0, 3, 48),
    }
    options = {
        "optimizer": str(rng.choice(["sgd", "momentum", "adamw"])), "lr": 0.02, "batch": 16,
        "micro_batches": int(rng.choice([1, 2])), "steps": 50, "seed": int(rng.integers(9)),
        "plan": str(rng.choice(["keep", "sqrt", "mirror"])), "train_mode": True, "loss": "ce",
        "every": 25,
    }  # fmt: skip
    return gt.load(build(body, **arrays)), data, options


def trained(seed, *group, **more):
    model, data, options = network(seed)
    with gt.Trainer(model, **options | more) as trainer:
        history = trainer.fit(data, evaluate=data, **dict(zip(["group"], group, strict=False)))
        names = ("w1", "w2", "w3", "s1", "s2", "b1", "b2", "m1", "m2", "v1", "v2")
        return history.losses, history.evaluations, trainer.session.values(*names)

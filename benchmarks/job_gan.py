"""A generator and a discriminator trained in turn, by two sessions that share parameters.

    python job_gan.py FOLDER SEED

The models and points are those that `job_gan_torch.py` wrote; points of the trained generator go
into `FOLDER/ours.npy`, the figure is their energy distance to those that are known.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from job_clock import Clock

import gradtool as gt

NOISE, BATCH, ROUNDS, RATE = 4, 128, 1500, 1e-3
Array = np.ndarray[Any, Any]


def arc(count: int, seed: int) -> Array:
    """Points around a half circle."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, np.pi, count)
    place = np.stack([np.cos(angle), np.sin(angle)], 1)
    return (place + rng.normal(0, 0.1, (count, 2))).astype(np.float32)


def distance(found: Array) -> float:
    """The energy distance of points to those of the arc (Székely and Rizzo 2013)."""
    known = arc(len(found), 99)

    def mean(a: Array, b: Array) -> float:
        return float(np.linalg.norm(a[:, None] - b[None], axis=2).mean())

    return 2 * mean(found, known) - mean(found, found) - mean(known, known)


def ours(folder: Path, seed: int) -> None:
    """Train two sessions in turn."""
    rng, points, clock = np.random.default_rng(seed), np.load(folder / "points.npy"), Clock()
    adam = {"optimizer": "adam", "optimizer_option": {"beta1": 0.5}, "loss": "bce-logits:score"}
    judge = gt.grad(gt.load(folder / "judge.onnx"), **adam)
    pair = gt.grad(gt.load(folder / "pair.onnx"), wrt=["make.*"], **adam)
    labels = np.repeat(np.array([[1], [0]], np.float32), BATCH, 0)
    with gt.Session(judge) as first, gt.Session(pair, share=first) as second:

        def noise(count: int) -> Array:
            return rng.standard_normal((count, NOISE), np.float32)

        made = second.evaluate({"x": noise(BATCH), "labels": labels[:BATCH]}).outputs["points"]
        for _ in range(ROUNDS):
            real = points[rng.integers(0, len(points), BATCH)]
            first.step({"x": np.concatenate([real, made]), "labels": labels, "lr": RATE})
            step = {"x": noise(BATCH), "labels": labels[:BATCH], "lr": RATE}
            made = second.step(step).outputs["points"]
            clock.stepped()
        clock.ended()
        found = [
            second.evaluate({"x": noise(BATCH), "labels": labels[:BATCH]}).outputs["points"]
            for _ in range(8)
        ]
    np.save(folder / "ours.npy", np.concatenate(found))


if __name__ == "__main__":
    ours(Path(sys.argv[1]), int(sys.argv[2]))

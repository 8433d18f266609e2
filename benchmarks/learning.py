"""Seconds of a training step of the samples that learn, beside PyTorch eager in the same run.

    python benchmarks/learning.py [--steps 60] [--rounds 5]

needs torch and scikit-learn.  Each side takes whole steps on the same data: forward, loss,
backward, the updates of AdamW; ours looks at the data and writes its journal as well, but no
checkpoint.  The least of some rounds, taken in turn; processor time, one thread.  Printed are
numpy's kernels and the native ones, where the library is there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch_eager import Eager

import gradtool as gt
from gradtool.native import library
from gradtool.training.callbacks import Watcher

sys.path.append(str(Path(__file__).resolve().parents[1] / "samples"))
import digits
import letters
import transfer

Data = Mapping[str, np.ndarray[Any, Any]]


class Timing(Watcher):
    """Processor seconds after each step."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def stepped(self, *_: Any) -> None:
        self.times.append(time.process_time())


def ours(path: Path, data: Data, kernels: str, steps: int, **options: Any) -> float:
    """Seconds of a step of `gt.Trainer`."""
    watcher = Timing()
    with (
        tempfile.TemporaryDirectory() as run,
        gt.Trainer(
            path, steps=steps + 1, kernels=kernels, checkpoint_every=2 * steps, **options
        ) as trainer,
    ):
        trainer.fit(data, run=run, watcher=watcher)
    return (watcher.times[-1] - watcher.times[0]) / steps


def theirs(path: Path, data: Data, steps: int, *, batch: int, wrt: tuple[str, ...] = ()) -> float:
    """Seconds of a step of PyTorch eager."""
    model = onnx.load(path)
    eager = Eager(model)
    floats = {n: v for n, v in eager.values.items() if v.is_floating_point()}
    chosen = [v for n, v in floats.items() if not wrt or n.startswith("head.")]
    for leaf in chosen:
        leaf.requires_grad_(True)
    optimizer = torch.optim.AdamW(chosen)
    tensors = eager.tensors(dict(data))
    count = len(tensors["labels"])
    order = torch.Generator().manual_seed(0)

    def step() -> None:
        indices = torch.randperm(count, generator=order)[:batch]
        part = {name: tensor[indices] for name, tensor in tensors.items()}
        labels = part.pop("labels")
        logits = eager(part)["logits"]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()

    step()
    start = time.process_time()
    for _ in range(steps):
        step()
    return (time.process_time() - start) / steps


def subjects(folder: Path) -> dict[str, tuple[Path, Data, dict[str, Any]]]:
    """By name: a model, its data, and options of its training."""
    onnx.save(digits.model(), folder / "digits.onnx")
    headed = gt.load(folder / "digits.onnx", head=f"logits:{transfer.CLASSES}")
    gt.save(headed, folder / "transfer.onnx")
    onnx.save(letters.transformer.model(), folder / "letters.onnx")
    images, labels = digits.images()
    known = digits.split(images, labels)["train"]
    few = digits.split(images, labels % transfer.CLASSES)["train"]
    text = letters.stretches(letters.text())
    return {
        "digits": (folder / "digits.onnx", known, {"batch": 32}),
        "letters": (folder / "letters.onnx", text, {"batch": 16}),
        "transfer": (
            folder / "transfer.onnx", {n: a[: transfer.FEW] for n, a in few.items()},
            {"batch": 10, "wrt": ("head.*",)},
        ),
    }  # fmt: skip


def main() -> None:
    """Print a row for each sample."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    kernels = ["numpy", *(["native"] if library.status()[0] is not None else [])]
    print(f"{'sample':<12}" + "".join(f"{name:>12}" for name in (*kernels, "torch")))
    with tempfile.TemporaryDirectory() as folder:
        for name, (path, data, options) in subjects(Path(folder)).items():
            sides = [partial(ours, path, data, k, asked.steps, **options) for k in kernels]
            sides.append(partial(theirs, path, data, asked.steps, **options))
            rounds = [[side() for side in sides] for _ in range(asked.rounds)]
            least = [min(column) for column in zip(*rounds, strict=True)]
            print(f"{name:<12}" + "".join(f"{1e3 * each:>9.2f} ms" for each in least))


if __name__ == "__main__":
    main()

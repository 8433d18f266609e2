"""What training comes to beside PyTorch: the same start, order of data and optimizer.

    python benchmarks/learning_torch.py [--steps 200] [--optimizer adamw] [--seeds 5] [NAME…]

needs torch.  The samples (a CNN with BatchNormalization in training form, an LSTM, a transformer)
are trained in float64 and in float32, ours and by PyTorch eager.  Printed for each:

float64   the largest relative difference of a loss, and of a weight to the largest of its tensor
float32   the same of ours against PyTorch in float64, over that of PyTorch's own float32

each over data drawn with some seeds: in float64 the largest, in float32 the median, the least and
the largest.  Which Relu the rounding of one side opens and that of the other does not is chance,
and so is a single ratio.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, numpy_helper
from torch_eager import Eager

import gradtool as gt

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
BATCHES = 4
RATE = 1e-3
OPTIMIZERS = {
    "sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
}  # fmt: skip

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Run:
    """The losses of some steps, and the weights after them."""

    losses: Sequence[float]
    weights: Mapping[str, np.ndarray[Any, Any]]


def model(name: str, dtype: type[np.floating[Any]]) -> onnx.ModelProto:
    """A sample whose floats have a type."""
    made = onnx.load(SAMPLES / f"{name}.onnx")
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    for tensor in made.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(dtype)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in (*made.graph.input, *made.graph.output, *made.graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = code
    for node in made.graph.node:
        for attribute in node.attribute:
            _convert(attribute, dtype)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == 1:
                attribute.i = code
    return made


def _convert(attribute: onnx.AttributeProto, dtype: type[np.floating[Any]]) -> None:
    """Give the float32 constant of a node a type."""
    if attribute.name == "value_float":
        array = np.array(attribute.f, np.float32)
    elif attribute.type == onnx.AttributeProto.TENSOR:
        array = numpy_helper.to_array(attribute.t)
    else:
        return
    if array.dtype == np.float32:
        tensor = numpy_helper.from_array(array.astype(dtype))
        attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))


def data(name: str, dtype: type[np.floating[Any]], seed: int) -> list[Arrays]:
    """Some batches like that of the sample, drawn anew."""
    rng = np.random.default_rng(seed)
    with np.load(SAMPLES / f"{name}.npz") as given:
        likes = dict(given)
    return [{key: _drawn(rng, like, dtype) for key, like in likes.items()} for _ in range(BATCHES)]


def _drawn(
    rng: np.random.Generator, like: np.ndarray[Any, Any], dtype: type[np.floating[Any]]
) -> np.ndarray[Any, Any]:
    if like.dtype.kind == "f":
        return rng.standard_normal(like.shape).astype(dtype)
    return rng.integers(like.min(), like.max() + 1, like.shape).astype(like.dtype)


def ours(made: onnx.ModelProto, batches: Sequence[Arrays], steps: int, optimizer: str) -> Run:
    """Trained by gradtool."""
    with gt.Trainer(gt.load(made), optimizer=optimizer, lr=RATE, steps=steps) as trainer:
        history = trainer.fit(lambda: iter(batches))
        return Run(list(history.losses), trainer.session.values())


def theirs(
    made: onnx.ModelProto,
    batches: Sequence[Arrays],
    steps: int,
    optimizer: str,
    dtype: torch.dtype,
) -> Run:
    """Trained by PyTorch eager."""
    eager = Eager(made, dtype)
    names = gt.grad(gt.load(made), optimizer=optimizer).updates
    leaves = {name: eager.values[name].requires_grad_(True) for name in names}
    stepper = OPTIMIZERS[optimizer](list(leaves.values()), lr=RATE)
    losses = []
    for step in range(steps):
        feeds = eager.tensors(batches[step % len(batches)])
        labels = feeds.pop("labels")
        logits = eager(feeds)[made.graph.output[0].name]
        loss = torch.nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), labels.flatten()
        )
        stepper.zero_grad()
        loss.backward()
        stepper.step()
        losses.append(loss.item())
    return Run(losses, {name: leaf.detach().numpy() for name, leaf in leaves.items()})


def apart(a: Run, b: Run) -> tuple[float, float]:
    """The largest relative differences: of a loss, of a weight to the largest of its tensor."""
    losses = max(abs(x - y) / max(abs(y), 1e-300) for x, y in zip(a.losses, b.losses, strict=True))
    weights = max(
        float(np.abs(a.weights[n] - w).max() / np.abs(w).max()) for n, w in b.weights.items()
    )
    return float(losses), weights


def compared(
    name: str, steps: int, optimizer: str, seed: int = 7
) -> dict[str, tuple[float, float]]:
    """The differences of losses and of weights: ours in float64, then both in float32."""
    made, batches = model(name, np.float64), data(name, np.float64, seed)
    exact = theirs(made, batches, steps, optimizer, torch.float64)
    double = ours(made, batches, steps, optimizer)
    made, batches = model(name, np.float32), data(name, np.float32, seed)
    return {
        "float64": apart(double, exact),
        "ours": apart(ours(made, batches, steps, optimizer), exact),
        "torch": apart(theirs(made, batches, steps, optimizer, torch.float32), exact),
    }


def ratios(found: Sequence[Mapping[str, tuple[float, float]]], which: int) -> list[float]:
    """By seed, how far ours is off over how far PyTorch's own is: in losses (0), in weights (1)."""
    return sorted(each["ours"][which] / each["torch"][which] for each in found)


def main() -> None:
    """Print a line a sample."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=["cnn", "lstm", "transformer"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':12}{'float64: loss':>16}{'weights':>10}{'float32: loss':>22}{'weights':>22}")
    for name in options.names:
        seeds = range(7, 7 + options.seeds)
        found = [compared(name, options.steps, options.optimizer, seed) for seed in seeds]
        exact = [max(each["float64"][which] for each in found) for which in (0, 1)]
        told = [
            f"{median(r):.2f}× ({r[0]:.2f} to {r[-1]:.2f})"
            for r in (ratios(found, 0), ratios(found, 1))
        ]
        print(f"{name:12}{exact[0]:16.1e}{exact[1]:10.1e}{told[0]:>22}{told[1]:>22}", flush=True)


if __name__ == "__main__":
    main()

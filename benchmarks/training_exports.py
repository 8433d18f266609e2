"""Fresh exports by torch.onnx through gradtool train, beside PyTorch's own training.

    python benchmarks/training_exports.py [NAME…] [--draws N] [--kinds KIND…] [--steps N]

Every module of `export_modules.py` is exported by every exporter, static and with an open batch,
and trained a few steps with drawn options: optimizer, micro-batches, memory plan, native kernels,
a memory to keep to.  What must hold of each: the command exits with 0, or says that the exporter
fixed the examples of a part; the weights in the file are those that torch.optim comes to; a run
that is stopped half-way and resumed ends in the same bytes.  A network whose parameters an exporter
folded or merged goes another way from the second step on: it is held to the first step.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import torch
from export_modules import MODULES, Made, Sizes
from exports import KINDS, Case, call, export
from onnx import numpy_helper
from torch import nn

OPTIMIZERS = {
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
    "adagrad": torch.optim.Adagrad,
    "adamw": torch.optim.AdamW,
}
RATES = {"sgd": 1e-2, "momentum": 1e-2, "adagrad": 1e-3, "adamw": 1e-3}
BATCHES = 2  # that the data have
TOLERANCE = 2e-3  # of the way that a parameter goes
AS_FAR = 10  # times as far from float64 as PyTorch's own float32
FIXED = "leave out micro_batches, or export it with an open batch"  # what can be done is said
TINY = 1e-5  # a gradient this small to the largest is rounding, which adaptive optimizers blow up

Arrays = dict[str, np.ndarray]


@dataclass
class Training:
    """One export and the options it is trained with, and what was found wrong."""

    case: Case
    optimizer: str
    options: tuple[str, ...]
    wrong: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.case.label} {self.optimizer} {' '.join(self.options)}"


def trainings(names: list[str], kinds: list[str], draws: int) -> Iterator[Training]:
    """Every export, each with options of its own."""
    for draw in range(draws):
        for place, name in enumerate(names):
            batch = Sizes.drawn(draw).batch
            for turn, (kind, dynamic) in enumerate((k, d) for k in kinds for d in (False, True)):
                rng = np.random.default_rng((draw, place, turn))
                options = [("--kernels", str(rng.choice(["numpy", "native"])))]
                plans = ["keep", "sqrt", "min-cut", "mirror"]
                if dynamic and rng.random() < 0.5:
                    options.append(("--micro-batches", str(batch)))
                if dynamic and rng.random() < 0.3 and len(options) == 1:
                    options.append(("--memory", "1GiB"))
                else:
                    options.append(("--plan", str(rng.choice(plans))))
                flat = tuple(word for pair in options for word in pair)
                optimizer = str(rng.choice(list(OPTIMIZERS)))
                yield Training(Case(name, kind, dynamic, False, draw), optimizer, flat)


def made(case: Case) -> tuple[Made, list[Arrays]]:
    """The module with its inputs, and batches like these."""
    sizes = Sizes.drawn(case.draw)
    torch.manual_seed(case.draw)
    module, inputs = MODULES[case.name](sizes)
    module.eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    batches = [inputs, *(MODULES[case.name](sizes)[1] for _ in range(BATCHES - 1))]
    return (module, inputs), [{f"x{i}": x.numpy() for i, x in enumerate(each)} for each in batches]


def theirs(
    module: nn.Module, batches: list[Arrays], optimizer: str, steps: int, dtype: torch.dtype
) -> tuple[list[float], Arrays, Arrays]:
    """Losses, weights and the least size of each gradient in all steps, by PyTorch."""
    module = copy.deepcopy(module).to(dtype)
    stepper = OPTIMIZERS[optimizer](module.parameters(), lr=RATES[optimizer])
    losses, sizes = [], Arrays()
    for step in range(steps):
        stepper.zero_grad()
        given = map(torch.from_numpy, batches[step % BATCHES].values())
        loss = module(*(x.to(dtype) if x.is_floating_point() else x for x in given)).mean()
        loss.backward()
        found = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
        for name, gradient in found.items():
            size = gradient.abs().numpy()
            sizes[name] = np.minimum(sizes.get(name, size), size)
        stepper.step()
        losses.append(loss.item())
    return losses, {n: p.detach().numpy() for n, p in module.named_parameters()}, sizes


def examine(training: Training, folder: Path, steps: int) -> str:
    """Export and train; why it was not exported, if it was not."""
    case = training.case
    (module, inputs), batches = made(case)
    path = folder / "model.onnx"
    problem = export(case, module, inputs, path)
    if problem:
        return problem
    first = {n: p.detach().numpy().copy() for n, p in module.named_parameters()}
    stacked = {n: np.concatenate([b[n] for b in batches]) for n in batches[0]}
    np.savez(folder / "data.npz", **stacked)
    arguments = [
        "train", str(path), "--data", str(folder / "data.npz"), "--loss", "mean:y",
        "--no-shuffle", "--batch", str(len(inputs[0])), "--optimizer", training.optimizer,
        "--lr", str(RATES[training.optimizer]), *training.options,
    ]  # fmt: skip
    whole = _trained(training, folder, "whole", [*arguments, "--steps", str(steps)])
    if whole is None:
        return ""
    if not is_of_examples(module, inputs) and "--micro-batches" in training.options:
        return ""  # parts of a batch are something else
    half = ["--checkpoint-every", "1", "--steps"]
    if _trained(training, folder, "half", [*arguments, *half, str(steps // 2)]) is not None:
        again = [*arguments, *half, str(steps), "--resume"]
        resumed = _trained(training, folder, "half", again)
        if resumed is not None and resumed[1] != whole[1]:
            training.wrong.append("resumed: other bytes than in one go")
    if _changed(first, folder):
        steps = 1
        whole = _trained(training, folder, "first", [*arguments, "--steps", "1"])
        if whole is None:
            return ""
    both = [
        theirs(module, batches, training.optimizer, steps, dtype)
        for dtype in (torch.float32, torch.float64)
    ]
    _compare(training, whole, first, both, folder)
    return ""


def _changed(first: Arrays, folder: Path) -> bool:
    """Whether the exporter left a parameter out, or wrote another in its place."""
    held = {
        each.name: numpy_helper.to_array(each)
        for each in onnx.load(folder / "model.onnx").graph.initializer
    }
    return any(n not in held or not np.array_equal(held[n], a) for n, a in first.items())


def is_of_examples(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> bool:
    """Whether the loss of a batch is the mean of its examples' losses."""
    count = len(inputs[0])
    with torch.no_grad():
        whole = module(*inputs).mean()
        parts = [module(*(x[i : i + 1] for x in inputs)).mean() for i in range(count)]
    return bool(abs(whole - sum(parts) / count) < TOLERANCE)


def _trained(
    training: Training, folder: Path, name: str, arguments: list[str]
) -> tuple[list[float], bytes] | None:
    """Losses and the file that is written; None if the command failed."""
    run, output = folder / name, folder / f"{name}.onnx"
    code, _, err = call(*arguments, "--run", str(run), "-o", str(output), "--force")
    if code:
        said = [line for line in err.splitlines() if line.startswith("gradtool: ")]
        if said and said[-1].endswith(FIXED):
            return None  # nothing is wrong with that
        training.wrong.append(f"{name}: exit {code}: {(said or ['?'])[-1][:200]}")
        return None
    entries = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [each["loss"] for each in entries if "loss" in each], output.read_bytes()


def _compare(
    training: Training,
    mine: tuple[list[float], bytes],
    first: Arrays,
    both: list[tuple[list[float], Arrays, Arrays]],
    folder: Path,
) -> None:
    """Hold what was trained to PyTorch's float64, as far as its own float32 is from that."""
    single, (losses, weights, sizes) = both
    apart, theirs = (
        max(abs(a - b) / max(abs(b), 1e-2) for a, b in zip(each, losses, strict=True))
        for each in (mine[0], single[0])
    )
    if apart > TOLERANCE + AS_FAR * theirs:
        training.wrong.append(f"a loss is off by {apart:.1e}")
    held = {
        each.name: numpy_helper.to_array(each)
        for each in onnx.load_from_string(mine[1]).graph.initializer
    }
    before = {
        each.name: numpy_helper.to_array(each)
        for each in onnx.load(folder / "model.onnx").graph.initializer
    }
    largest = max((float(size.max(initial=0)) for size in sizes.values()), default=0.0)
    adapts = training.optimizer not in ("sgd", "momentum")
    for name, weight in weights.items():
        same = name in before and before[name].shape == weight.shape
        if not same or not np.array_equal(before[name], first[name]) or name not in sizes:
            continue  # the exporter changed it
        counts = sizes[name] >= TINY * largest if adapts else np.ones(weight.shape, bool)
        way = float(np.abs(weight - first[name]).max(initial=0))
        off, theirs = (
            float(np.where(counts, np.abs(each - weight), 0).max(initial=0)) / (way + 1e-6)
            for each in (held[name], single[1][name])
        )
        if off > 10 * TOLERANCE + AS_FAR * theirs:
            training.wrong.append(f"{name} is off by {off:.1e} of its way")


def main() -> int:
    """Train what is asked for; a line for each with something wrong, and a closing one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--steps", type=int, default=4)
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    for training in trainings(asked.names or list(MODULES), asked.kinds, asked.draws):
        with tempfile.TemporaryDirectory() as folder:
            problem = examine(training, Path(folder), asked.steps)
        counts["not exported" if problem else "wrong" if training.wrong else "right"] += 1
        for line in dict.fromkeys(training.wrong):
            print(f"{training.label}: {line}", flush=True)
    told = ", ".join(f"{counts[k]} {k}" for k in ("right", "wrong", "not exported"))
    print(f"{sum(counts.values())} trainings: {told}")
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())

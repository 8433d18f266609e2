"""Files of every kind, fed with sizes at random, and with what they must refuse.

    python benchmarks/feeds.py [--models 100] [--first 1000] [--exports]

Models of `tests/symbolic_models.py`, or with `--exports` some of PyTorch's, by both exporters, with
dynamic axes.  Of each: grad, head-grads, split, grad-buffers, optimizer, mirror and recompute, with
two batches of different sizes each; in memory, by `gradtool run --inputs` of the written file, and
in stock onnxruntime at its default options.  All results of a step have to agree.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).parents[1] / "tests"
sys.path.append(str(TESTS))

import feeding  # noqa: E402 - of the tests
import symbolic_models  # noqa: E402 - of the tests

import gradtool as gt  # noqa: E402 - sorted behind them

Batches = list[dict[str, np.ndarray[Any, Any]]]
Shapes = list[list[tuple[int, ...]]]


def generated(first: int, count: int, folder: Path) -> Iterator[tuple[str, Path, Batches]]:
    """Models at random."""
    for seed in range(first, first + count):
        made = symbolic_models.case(seed)
        path = folder / "model.onnx"
        path.write_bytes(made.model.SerializeToString())
        yield made.name, path, [made.batch(seed), made.batch(seed + 1)]


def modules() -> list[tuple[str, Any, Shapes, list[dict[int, Any]]]]:
    """PyTorch modules that make sizes of sizes: their names, shapes of batches, and open axes."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    batch, rows, columns = (
        torch.export.Dim(n, min=2, max=99) for n in ("batch", "rows", "columns")
    )
    image, line = {0: batch, 2: rows, 3: columns}, {0: batch, 1: rows}
    convolved = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 3, 3)
    )

    class Joined(nn.Module):
        """Both of a batch, one behind the other."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return torch.tanh(self.inner(torch.cat([x, 2 * x], 0)[:, 1:]))

    class Flat(Joined):
        """Rows of all of a batch."""

        def forward(self, x: Any) -> Any:
            return torch.tanh(self.inner(x.reshape(-1, 4)))

    class Apart(Joined):
        """A second input of twice the size."""

        def forward(self, x: Any, z: Any) -> Any:
            return torch.tanh(self.inner(torch.cat([x, x], 0) + z))

    rows_of_both = {0: 2 * batch, 1: rows}
    return [
        ("convolved", convolved, [[(2, 3, 34, 36)], [(3, 3, 41, 35)]], [image]),
        ("joined", Joined(), [[(2, 5, 4)], [(5, 8, 4)]], [line]),
        ("flat", Flat(), [[(2, 5, 4)], [(4, 7, 4)]], [line]),
        ("apart", Apart(), [[(2, 5, 4), (4, 5, 4)], [(3, 6, 4), (6, 6, 4)]], [line, rows_of_both]),
    ]


def exported(folder: Path) -> Iterator[tuple[str, Path, Batches]]:
    """The modules, by both exporters."""
    import torch

    rng = np.random.default_rng(0)
    for (name, module, shapes, dynamic), dynamo in itertools.product(modules(), (True, False)):
        inputs = ["x", "z"][: len(dynamic)]
        batches = [
            {n: rng.standard_normal(shape).astype(np.float32) for n, shape in named}
            for named in (zip(inputs, each, strict=True) for each in shapes)
        ]
        axes = [{axis: dim.__name__ for axis, dim in one.items()} for one in dynamic]
        sizes: dict[str, Any] = (
            {"dynamic_shapes": tuple(dynamic)}
            if dynamo
            else {"dynamic_axes": dict(zip(inputs, axes, strict=True))}
        )
        path = folder / f"{name}-{dynamo}.onnx"
        examples = tuple(torch.from_numpy(batches[0][n]) for n in inputs)
        names = {"input_names": inputs, "output_names": ["y"]}
        torch.onnx.export(
            module, examples, str(path), dynamo=dynamo, verbose=False, **names, **sizes
        )
        yield f"{name} ({'dynamo' if dynamo else 'TorchScript'})", path, batches


def main() -> None:
    """Print what differs, and a closing line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--exports", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subjects = (
            exported(folder) if asked.exports else generated(asked.first, asked.models, folder)
        )
        for title, path, batches in subjects:
            counts["models"] += 1
            for told in wrong(path, batches, folder, counts):
                counts["wrong"] += 1
                sys.stdout.write(f"{title}: {told}\n")
    sys.stdout.write(
        f"{counts['models']} models, {counts['runs']} runs compared, {counts['refused']} feeds "
        f"refused: {counts['wrong']} wrong\n"
    )
    sys.exit(bool(counts["wrong"]))


def wrong(path: Path, batches: Batches, folder: Path, counts: Counter[str]) -> Iterator[str]:
    """What is wrong with the files of a model."""
    model = gt.load(path)
    try:
        for what, off in feeding.examine(model, batches, folder):
            counts["runs"] += 1
            if not off <= feeding.TOLERANCE:
                yield f"{what}: off by {off:.1e}"
        graph = gt.grad(model, loss="mean:y", input_grad=["x"])
        counts["refused"] += len(feeding.misfits(batches[0]))
        yield from feeding.refused(graph, batches[0])
    except Exception as error:  # noqa: BLE001 - a sweep goes on
        yield f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


if __name__ == "__main__":
    main()

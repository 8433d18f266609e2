"""`torch.nn.functional.interpolate`, exported both ways, against PyTorch's own map and onnxruntime.

    python benchmarks/resize_torch.py [--cases 200] [--first 0]

Draws modes, sizes and scale factors (recomputed or not), corners, antialiasing, known and dynamic
sizes; exports each by TorchScript or dynamo as a model whose loss is `Σ interpolate(x)²`. The exact
gradient is that of the Jacobian of PyTorch's forward; where onnxruntime computes another forward
from the exported file, that of onnxruntime's. Prints what is wrong and a closing line.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import sys
import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests")]

from resize_checks import Stock, jacobian, near  # noqa: E402

import gradtool as gt  # noqa: E402
from gradtool import io as files  # noqa: E402
from gradtool.ops.composites.calls import inline  # noqa: E402

MODES = {
    3: ["nearest", "nearest-exact", "linear"],
    4: ["nearest", "nearest-exact", "bilinear", "bicubic"],
    5: ["nearest", "nearest-exact", "trilinear"],
}
FACTORS = (0.5, 0.7, 1.0, 1.05, 1.3, 1.5, 2.0, 2.5, 3.0)
OPSETS = (11, 13, 16, 18)


@dataclass(frozen=True)
class Interpolation:
    """A call of `interpolate`, and how it is exported; dynamo chooses its own opset."""

    shape: tuple[int, ...]
    options: dict[str, Any]
    dynamic: bool
    opset: int | None

    def __call__(self, x: Any) -> Any:
        return torch.nn.functional.interpolate(x, **self.options)


class Squares(torch.nn.Module):
    """The result of an interpolation and the sum of its squares."""

    def __init__(self, call: Interpolation) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: Any) -> Any:
        y = self.call(x)
        return y, (y * y).sum()


def draw(rng: np.random.Generator) -> Interpolation:
    """An interpolation at random."""
    rank = int(rng.choice([3, 4, 5], p=[0.2, 0.6, 0.2]))
    sizes = [int(n) for n in rng.integers(1, 9, rank - 2)]
    mode = str(rng.choice(MODES[rank]))
    options: dict[str, Any] = {"mode": mode}
    if not mode.startswith("nearest"):
        options["align_corners"] = bool(rng.random() < 0.4)
    if rng.random() < 0.5:
        wanted = [rng.choice([n, 1, 2 * n, rng.integers(1, 2 * n + 3)]) for n in sizes]
        options["size"] = tuple(int(n) for n in wanted)
    else:
        usable = [[f for f in FACTORS if int(n * f)] for n in sizes]
        options["scale_factor"] = tuple(float(rng.choice(f)) for f in usable)
        options["recompute_scale_factor"] = True if rng.random() < 0.4 else None
    if mode in ("bilinear", "bicubic") and not options["align_corners"] and rng.random() < 0.25:
        options["antialias"] = True
    scripted = mode != "nearest-exact" and rng.random() < 0.6  # TorchScript has no such operator
    opset = int(rng.choice(OPSETS)) if scripted else None
    return Interpolation((1, 2, *sizes), options, bool(rng.random() < 0.4), opset)


def export(case: Interpolation, x: Any, path: Path) -> bool:
    """Write the model; whether PyTorch can."""
    axes = range(2, len(case.shape))
    given: dict[str, Any] = {"input_names": ["x"], "output_names": ["y", "loss"]}
    if case.opset is None:
        free = {a: torch.export.Dim.DYNAMIC for a in axes if case.shape[a] > 1}
        given |= {"dynamo": True, "verbose": False, "external_data": False}
        given["dynamic_shapes"] = (free,) if case.dynamic else None
    else:
        given |= {"dynamo": False, "opset_version": case.opset}
        given["dynamic_axes"] = {"x": {a: f"d{a}" for a in axes}} if case.dynamic else None
    silent = io.StringIO()
    with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        try:
            torch.onnx.export(Squares(case), (x,), str(path), **given)
        except Exception:  # noqa: BLE001 - what it cannot export is no case
            return False
    return True


def examine(case: Interpolation, folder: Path) -> tuple[list[str], str]:
    """What is wrong, and a remark."""
    x = np.random.default_rng(1).uniform(-1, 1, case.shape).astype(np.float32)
    path, gradient = folder / "model.onnx", folder / "gradient.onnx"
    if not export(case, torch.from_numpy(x), path):
        return [], "PyTorch does not export it"
    graph = gt.load(path)
    made = gt.grad(graph, loss="loss", wrt=[], input_grad=["x"])
    files.save(made.model, gradient, force=True, finish=inline)  # onnxruntime loads it below
    written = gt.load(gradient)
    found = gt.run(written, {"x": x})
    stock = Stock(path)

    def in_torch(u: Any) -> Any:
        return case(torch.from_numpy(u)).numpy()

    remark = ""
    meant = in_torch
    theirs = stock({"x": x}, "y")
    if not near(theirs, in_torch(x)):
        remark = "onnxruntime computes another forward than PyTorch from PyTorch's file"
        meant = lambda u: stock({"x": u}, "y")  # noqa: E731
    map_ = jacobian(meant, x.shape)
    exact = 2 * np.tensordot(map_, meant(x).astype(np.float64), axes=x.ndim).reshape(x.shape)
    if not remark and not near(_autograd(case, x), exact):
        remark = "PyTorch's gradient is not that of its own forward"
    name = json.loads(written.metadata_props["gradtool.gradients"])["x"]
    wrong = [] if near(gt.run(graph, {"x": x}).outputs["y"], theirs) else ["forward"]
    wrong += [] if near(found.gradients["x"], exact) else ["our gradient"]
    wrong += [] if near(Stock(gradient)({"x": x}, name), exact) else ["the written gradient"]
    return wrong, remark


def _autograd(case: Interpolation, x: Any) -> Any:
    leaf = torch.from_numpy(x).requires_grad_()
    (case(leaf) ** 2).sum().backward()
    return leaf.grad.numpy()


def main() -> int:
    """Parse, run, print; the exit code says whether a case was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first case")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    remarks: Counter[str] = Counter()
    wrong = exported = 0
    for seed in range(given.first, given.first + given.cases):
        case = draw(np.random.default_rng(seed))
        with tempfile.TemporaryDirectory() as folder:
            try:
                found, remark = examine(case, Path(folder))
            except Exception as error:  # noqa: BLE001 - whatever happens is a finding
                found, remark = [f"{type(error).__name__}: {error}"], ""
        remarks[remark] += bool(remark)
        exported += remark != "PyTorch does not export it"
        wrong += bool(found)
        for what in found:
            print(f"seed {seed}: {what} of {case}")
    for remark, count in sorted((+remarks).items()):
        print(f"{count:>6}  {remark}")
    print(f"{exported} of {given.cases} interpolations exported: {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

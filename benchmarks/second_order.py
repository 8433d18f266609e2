"""Second order of models in a zoo against PyTorch's double backward: `H·v` for random v.

    python benchmarks/second_order.py [ZOO] [NAME…] [--json FILE]

ZOO (default ../shared/zoo/small) holds a folder per model with `model.onnx` and `inputs.npz`.  The
model is differentiated, its training graph is differentiated again with head gradients v on every
gradient, and both run in float64; the second order is also run in float32, by our engine and by
stock onnxruntime.  Errors are relative L2 norms of the worst tensor, with a floor of 1e-4 of the
norm of all.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("pinn", "gan_wgan_gp", "activations")
Arrays = dict[str, np.ndarray[Any, Any]]


def second_order(folder: Path) -> dict[str, Any]:
    """One row: sizes, seconds and errors of one model."""
    import onnx
    import torch
    from torch_eager import Eager

    import gradtool as gt
    from gradtool.errors import GradtoolError
    from gradtool.passes.widen import widen

    path = folder / "model.onnx"
    with np.load(folder / "inputs.npz", allow_pickle=False) as data:
        inputs = dict(data)
    model = gt.load(path)
    start = time.perf_counter()
    first, second = _twice(model)
    seconds = time.perf_counter() - start
    wrt = list(first.gradients)
    feeds, heads = _with_heads(second, first.gradients, inputs)
    eager = Eager(onnx.load(path), torch.float64)
    loss = first.loss or ""
    mine = gt.run(_twice(widen(model))[1], {k: _wide(a) for k, a in feeds.items()}).gradients
    expected = {
        n: t.numpy() for n, t in zip(wrt, eager.second_order(inputs, loss, wrt, heads), strict=True)
    }
    row = {
        "model": folder.name,
        "parameters": len(wrt),
        "nodes": len(second.model.graph),
        "seconds": seconds,
        "float64": _error(expected, mine),
        "float32": _error(expected, gt.run(second, feeds).gradients),
    }
    try:
        row["onnxruntime"] = _error(expected, gt.run(second, feeds, engine="ort").gradients)
    except GradtoolError:
        row["onnxruntime"] = None
    return row


def _twice(model: Any) -> tuple[Any, Any]:
    """The training graph of a model, and the training graph of that."""
    import gradtool as gt

    first = gt.grad(model)
    return first, gt.grad(first, head_grads=True, wrt=list(first.gradients))


def _with_heads(
    second: Any, first: Mapping[str, str], inputs: Arrays
) -> tuple[Arrays, list[np.ndarray[Any, Any]]]:
    """The inputs of the second order: v for every gradient, zeros for what else is an output."""
    rng = np.random.default_rng(0)
    feeds = {v.name: inputs[v.name] for v in second.model.graph.inputs if v.name in inputs}
    for value in second.model.graph.inputs:
        if value.name not in feeds:
            feeds[value.name] = np.zeros(value.shape.numpy(), value.dtype.numpy())
    heads = []
    for gradient in first.values():
        zeros = feeds[f"{gradient}_grad"]
        head = rng.standard_normal(zeros.shape).astype(zeros.dtype)
        feeds[f"{gradient}_grad"] = head
        heads.append(head)
    return feeds, heads


def _wide(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _error(expected: Arrays, found: Mapping[str, np.ndarray[Any, Any]]) -> float:
    """The largest relative error of a tensor; one that is all but zero is measured by the floor."""
    whole = np.sqrt(sum(float(np.vdot(g, g)) for g in expected.values())) or 1.0
    return max(
        float(np.linalg.norm(found[n] - g) / (np.linalg.norm(g) + 1e-4 * whole))
        for n, g in expected.items()
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print; the exit code says whether a row failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("zoo", nargs="?", type=Path, default=ROOT.parent / "shared/zoo/small")
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    print(
        f"{'model':<16}{'tensors':>9}{'nodes':>8}{'seconds':>9}"
        f"{'float64':>10}{'float32':>10}{'onnxruntime':>13}"
    )
    rows = []
    for name in given.names:
        row = second_order(given.zoo / name)
        rows.append(row)
        stock = "" if row["onnxruntime"] is None else f"{row['onnxruntime']:.1e}"
        print(
            f"{row['model']:<16}{row['parameters']:>9}{row['nodes']:>8}{row['seconds']:>9.2f}"
            f"{row['float64']:>10.1e}{row['float32']:>10.1e}{stock:>13}"
        )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    failed = sum(row["float64"] > 1e-9 for row in rows)
    print(f"{len(rows) - failed} passed, {failed} failed (float64 within 1e-9)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

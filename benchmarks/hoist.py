"""What backward keeps of forward, before and after masks and hoisting, model by model.

    python benchmarks/hoist.py [DIR] [NAME…] [--json FILE]

First a broadcast-heavy graph and a ReLU network, made here, then every `model.onnx` and
`model_dynbatch.onnx` of DIR (a folder per model; weights may be absent).  Bytes that cross from
forward to backward count open sizes as `residuals.ASSUMED`; the peak is the planned one, of graphs
whose sizes are known.  `moved` are the nodes that forward computes for backward, `asked` the sizes
that backward reads off values that it keeps anyway.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

import gradtool as gt
from gradtool import shapes
from gradtool.workloads.savings import Saving, savings

ROOT = Path(__file__).resolve().parents[1]
HEADER = '<ir_version: 10, opset_import: ["" : 20]>\n'
LAYERS = 6

# Rows of `a` against rows of `b`: distances up to a limit, the larger, and a softmax of the best.
BROADCAST = """g (float[512, 1, 64] a, float[1, 512, 64] b, float[64] w) => (y)
    <float one = {1.0}, int64[1] axis = {-1}> {
    s = Mul (a, w) t = Mul (b, w) d = Sub (s, t) m = Abs (d) l = Min (m, one) h = Max (s, t)
    q = Add (l, h) z = ReduceMax <keepdims = 0> (q, axis) p = Softmax (z) v = Mul (p, z)
    y = ReduceSum <keepdims = 0> (v)
}"""


def broadcast() -> ir.Model:
    """A graph of which most bytes come from broadcasting."""
    return parsed(BROADCAST)


def relu_network() -> ir.Model:
    """Pooled ReLU layers: what follows each reads no value of it, only where it was positive."""
    layers, last, names = [], "x", []
    for i in range(LAYERS):
        names.append(f"float[16, 16, 3, 3] w{i}")
        layers.append(
            f"c{i} = Conv <pads = [1, 1, 1, 1]> ({last}, w{i}) r{i} = Relu (c{i}) "
            f"p{i} = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (r{i})"
        )
        last = f"p{i}"
    body = " ".join(layers)
    return parsed(
        f"g (float[8, 16, 64, 64] x, {', '.join(names)}) => (y) "
        f"{{ {body} y = ReduceMean <keepdims = 0> ({last}) }}"
    )


def parsed(text: str) -> ir.Model:
    """A model from text, whose inputs called w are parameters."""
    model = ir.from_onnx_text(HEADER + text)
    for value in [v for v in model.graph.inputs if v.name.startswith("w")]:
        model.graph.inputs.remove(value)
        value.const_value = ir.Tensor(np.ones(value.shape.numpy(), np.float32), name=value.name)
        model.graph.register_initializer(value)
    shapes.infer(model)
    return model


def cases(zoo: Path, names: list[str]) -> Iterator[tuple[str, Any]]:
    """Names, and what makes the models."""
    yield "broadcast", broadcast
    yield "relu_network", relu_network
    for path in sorted(zoo.glob("*/*.onnx")):
        if not names or path.parent.name in names:
            yield f"{path.parent.name}/{path.stem}", lambda p=path: gt.load(p)


def lines(name: str, rows: tuple[Saving, ...]) -> Iterator[str]:
    """A table row per step that changed something, the plain one always."""
    for before, row in zip((None, *rows), rows, strict=False):
        if before is not None and dataclasses.replace(row, step=before.step) == before:
            continue
        share = 100 * row.residuals / max(rows[0].residuals, 1)
        peak = "open" if row.peak is None else f"{row.peak / 2**20:.1f}"
        moved = ", ".join(f"{count} {op}" for op, count in row.moved) or "-"
        yield (
            f"{name:<28}{row.step:<10}{row.crossing / 2**20:>12.1f}{share:>8.1f}{peak:>12}"
            f"{row.asked:>7}  {moved}"
        )


def main() -> int:
    """Parse, compute, print; the exit code says whether a row got worse."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "zoo", type=Path, nargs="?", default=ROOT.parent / "shared" / "zoo" / "full"
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    print(f"{'model':<28}{'step':<10}{'cross MiB':>12}{'%':>8}{'peak MiB':>12}{'asked':>7}  moved")
    documents, worse = [], 0
    for name, make in cases(arguments.zoo, arguments.names):
        start = time.perf_counter()
        try:
            rows = savings(make())
        except gt.GradtoolError as error:
            print(f"{name:<28}{error}")
            worse += 1
            continue
        seconds = time.perf_counter() - start
        documents.append(
            {"model": name, "seconds": seconds, "rows": [dataclasses.asdict(r) for r in rows]}
        )
        worse += rows[-1].residuals > rows[0].residuals or (rows[-1].peak or 0) > (
            rows[0].peak or 0
        )
        print("\n".join(lines(name, rows)), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(documents, indent=1) + "\n", encoding="utf-8")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())

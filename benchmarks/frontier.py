"""The frontier of memory and work on every full-size training graph of a zoo.

    python benchmarks/frontier.py [DIR] [NAME…] [--batches] [--effort 0.1] [--json FILE]

DIR holds a folder per model with `model.onnx` and, for batches, `model_dynbatch.onnx`; no weights
are needed.  Peaks are those of packed arenas, in % of keeping everything, for at most 0, 2, 5, 10,
20 and 33 % extra FLOPs; below each, the extra FLOPs and the bound of the budget that it fills.
With `--batches`, the largest batch in 24 GiB: keep, mirror, sqrt, and optimal at no more extra work
than one forward pass.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import gradtool as gt
from gradtool import io, plans
from gradtool.budgets.batches import largest_batches
from gradtool.budgets.frontier import by_slowdown
from gradtool.budgets.search import Search
from gradtool.errors import GradtoolError
from gradtool.strategies import STRATEGIES

ROOT = Path(__file__).resolve().parents[1]
SHARES = [Fraction(percent, 100) for percent in (0, 2, 5, 10, 20, 33)]
MEMORY = 24 << 30
PLANS = ("keep", "mirror", "sqrt", "optimal")


def curve(path: Path, effort: float) -> dict[str, Any]:
    """Peak, extra work and bound for each share of a step, and what planning took."""
    work = plans.workload(gt.grad(gt.load(path)).model)
    start = time.perf_counter()
    found = by_slowdown(work, SHARES, Search(effort))
    seconds = time.perf_counter() - start
    points = []
    for planned in found:
        proof = planned.proof
        assert proof is not None  # noqa: S101 - plans within a budget have one
        points.append(
            {
                "peak_bytes": planned.plan.peak,
                "peak_percent": 100 * planned.plan.peak / work.kept.peak,
                "extra_percent": 100 * proof.share(proof.extra),
                "bound_percent": 100 * proof.share(proof.bound),
                "least_bytes": proof.least,
                "which_bound": proof.which_bound,
                "how": proof.how,
            }
        )
    steps = len(work.program.steps)
    return {"steps": steps, "keep_bytes": work.kept.peak, "points": points, "seconds": seconds}


def batches(path: Path) -> dict[str, int]:
    """The largest batch of each plan; the symbols that are no batch are 1."""
    loaded = gt.load(path)
    training = gt.grad(loaded).model
    names = list(io.symbols(training))
    symbol = next((name for name in names if "batch" in name), names[0])
    others = {name: 1 for name in names if name != symbol}
    grown = cache(lambda size: plans.workload(training, {**others, symbol: size}))
    return largest_batches(grown, {name: STRATEGIES[name] for name in PLANS}, MEMORY)


def lines(name: str, row: dict[str, Any]) -> list[str]:
    """A model in two lines, or three with batches."""
    points = row["points"]
    peaks = "".join(f"{p['peak_percent']:>15.1f}" for p in points)
    work = "".join(f"{p['extra_percent']:>8.2f}/{p['bound_percent']:<6.2f}" for p in points)
    said = [f"{name:<13}{row['steps']:>6}{peaks}{row['seconds']:>8.1f} s", f"{'':<19}{work}"]
    if "batches" in row:
        listed = ", ".join(f"{plan} {size}" for plan, size in row["batches"].items())
        said.append(f"{'':<19}largest batch in 24 GiB: {listed} ({row['batch_seconds']:.0f} s)")
    return said


def main() -> int:
    """Parse, plan, print; exit 1 if a plan takes more than keeping everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    zoo = ROOT.parent / "shared" / "zoo" / "full"
    parser.add_argument("zoo", type=Path, nargs="?", default=zoo)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--batches", action="store_true")
    parser.add_argument("--effort", type=float, default=0.1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    shares = "".join(f"{f'<= {int(100 * share)} %':>15}" for share in SHARES)
    print(
        f"{'model':<13}{'steps':>6}{shares}     seconds\n{'':<19}peak % of keep, then extra/bound %"
    )
    for folder in sorted(arguments.zoo.iterdir()):
        path, dynamic = folder / "model.onnx", folder / "model_dynbatch.onnx"
        if not path.exists() or (arguments.names and folder.name not in arguments.names):
            continue
        row = rows[folder.name] = curve(path, arguments.effort)
        if arguments.batches and dynamic.exists():
            start = time.perf_counter()
            try:
                row["batches"] = batches(dynamic)
            except GradtoolError as error:
                print(f"{folder.name}: no largest batch: {error}")
            row["batch_seconds"] = time.perf_counter() - start
        for line in lines(folder.name, row):
            print(line, flush=True)
        if arguments.json:
            text = json.dumps(rows, indent=1, sort_keys=True)
            arguments.json.write_text(text, encoding="utf-8")
    worse = sum(p["peak_percent"] > 100 for row in rows.values() for p in row["points"])
    print(f"{worse} plans take more than keep")
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())

"""The frontier of memory and work on every full-size training graph of a zoo.

    python benchmarks/frontier.py [DIR] [NAME…] [--batches] [--effort E] [--kernels numpy|native]
        [--json FILE]

DIR holds a folder per model with `model.onnx` and, for batches, `model_dynbatch.onnx`; no weights
are needed.  Peaks are those of packed arenas, in % of keeping everything, for at most 0, 2, 5, 10,
20 and 33 % extra FLOPs.  Below each: what no plan of so much work goes below; the extra FLOPs in %
of a step, the least that any plan within the same bytes takes, and the gap between these two.  Then
mirror and sqrt, with what a plan within their peak costs.  With `--batches`, the largest batch in
24 GiB: keep, mirror, sqrt, and optimal at no more extra work than one forward pass.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import gradtool as gt
from gradtool import io
from gradtool.errors import GradtoolError
from gradtool.operators.kernel_sets import Kernels
from gradtool.workloads import plans
from gradtool.workloads.budgets.batches import largest_batches
from gradtool.workloads.budgets.limits import Budget
from gradtool.workloads.budgets.search import Search, at_most, within
from gradtool.workloads.strategies import STRATEGIES

ROOT = Path(__file__).resolve().parents[1]
SHARES = [Fraction(percent, 100) for percent in (0, 2, 5, 10, 20, 33)]
MEMORY = 24 << 30
PLANS = ("keep", "mirror", "sqrt", "optimal")
RECIPES = ("mirror", "sqrt")
ROWS = {"peak": 1, "least": 1, "extra": 3, "bound": 3, "gap": 3}


def curve(path: Path, effort: float, kernels: Kernels) -> dict[str, Any]:
    """Peak and extra work for each share of a step with their bounds, and what planning took."""
    work = plans.workload(gt.grad(gt.load(path)).model, kernels=kernels)
    search = Search(effort)
    start = time.process_time()
    found = [at_most(work, share, search) for share in SHARES]
    seconds = time.process_time() - start
    points = []
    for planned in found:
        proof = planned.proof
        assert proof is not None  # noqa: S101 - plans within a budget have one
        points.append(
            {
                "peak": 100 * planned.plan.peak / work.kept.peak,
                "least": 100 * proof.least / work.kept.peak,
                "extra": 100 * proof.share(proof.extra),
                "bound": 100 * proof.share(proof.bound),
                "gap": 100 * proof.share(proof.gap),
                "which_bound": proof.which_bound,
                "how": proof.how,
            }
        )
    return {
        "steps": len(work.program.steps),
        "keep_bytes": work.kept.peak,
        "points": points,
        "recipes": {name: beside(work, name, found, search) for name in RECIPES},
        "seconds": seconds,
    }


def beside(
    work: plans.Workload, name: str, found: list[plans.Planned], search: Search
) -> dict[str, float | None]:
    """Peak and extra work of a recipe, and the least work found within its peak."""
    recipe = STRATEGIES[name](work)
    plan, steps = recipe.plan, work.program.steps
    again = [steps[s].flops for s in recipe.schedule.recomputed]
    extra = None if None in again else sum(flops or 0 for flops in again)
    total = plans.total_flops(work.kept.program)
    with suppress(GradtoolError):
        found = [*found, within(work, Budget(plan.peak), search)]
    fits = [p.proof.extra for p in found if p.proof and p.plan.peak <= plan.peak]
    return {
        "peak": 100 * plan.peak / work.kept.peak,
        "extra": None if extra is None else 100 * extra / total,
        "optimal": 100 * min(fits) / total if fits else None,
    }


def batches(path: Path, kernels: Kernels) -> dict[str, int]:
    """The largest batch of each plan; the symbols that are no batch are 1.

    Raises:
        GradtoolError: the model has no open size, or does not run with another batch.
    """
    loaded = gt.load(path)
    training = gt.grad(loaded).model
    names = list(io.symbols(training))
    if not names:
        raise GradtoolError("its batch is fixed")
    symbol = next((name for name in names if "batch" in name), names[0])
    others = {name: 1 for name in names if name != symbol}
    grown = plans.workloads(training, others, symbol, kernels)
    return largest_batches(grown, {name: STRATEGIES[name] for name in PLANS}, MEMORY)


def lines(name: str, row: dict[str, Any]) -> list[str]:
    """A model: a line for each figure, one for each recipe, one for batches."""
    kept = f"keep {row['keep_bytes'] / 2**20:.0f} MiB"
    said = [f"{name}: {row['steps']} steps, {kept}, {row['seconds']:.1f} s"]
    for figure, digits in ROWS.items():
        cells = "".join(f"{point[figure]:>9.{digits}f}" for point in row["points"])
        said.append(f"  {figure:<7}{cells}")
    for recipe, found in row["recipes"].items():
        extra, optimal = (percent(found[figure]) for figure in ("extra", "optimal"))
        peak = f"peak {found['peak']:.1f} %, extra {extra}"
        said.append(f"  {recipe}: {peak}; optimal within that peak {optimal}")
    if "batches" in row:
        listed = ", ".join(f"{plan} {size}" for plan, size in row["batches"].items())
        said.append(f"  largest batch in 24 GiB: {listed} ({row['batch_seconds']:.0f} s)")
    return said


def percent(work: float | None) -> str:
    """Work in % of a step; unknown where a step has no known cost or no plan was found."""
    return "unknown" if work is None else f"{work:.3f} %"


def is_worse(row: dict[str, Any]) -> bool:
    """Whether a plan takes more than keep, or more work than a recipe needs for its peak."""
    priced = [recipe for recipe in row["recipes"].values() if recipe["extra"] is not None]
    lost = any(r["optimal"] is None or r["optimal"] > r["extra"] for r in priced)
    return lost or any(point["peak"] > 100 for point in row["points"])


def main() -> int:
    """Parse, plan, print; exit 1 if a plan is worse than keep, mirror or sqrt."""
    parser = argparse.ArgumentParser(description=__doc__)
    zoo = ROOT.parent / "shared" / "zoo" / "full"
    parser.add_argument("zoo", type=Path, nargs="?", default=zoo)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--batches", action="store_true")
    parser.add_argument("--effort", type=float, default=1.0)
    parser.add_argument("--kernels", choices=get_args(Kernels), default="numpy")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    shares = "".join(f"{f'<= {int(100 * share)} %':>9}" for share in SHARES)
    print(f"  {'work':<7}{shares}")
    for folder in sorted(arguments.zoo.iterdir()):
        path, dynamic = folder / "model.onnx", folder / "model_dynbatch.onnx"
        if not path.exists() or (arguments.names and folder.name not in arguments.names):
            continue
        row = rows[folder.name] = curve(path, arguments.effort, arguments.kernels)
        if arguments.batches and dynamic.exists():
            start = time.process_time()
            try:
                row["batches"] = batches(dynamic, arguments.kernels)
            except GradtoolError as error:
                print(f"{folder.name}: no largest batch: {error}")
            row["batch_seconds"] = time.process_time() - start
        for line in lines(folder.name, row):
            print(line, flush=True)
        if arguments.json:
            text = json.dumps(rows, indent=1, sort_keys=True)
            arguments.json.write_text(text, encoding="utf-8")
    worse = [name for name, row in rows.items() if is_worse(row)]
    print(f"worse than keep, mirror or sqrt: {', '.join(worse) or 'none'}")
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())

"""Planned peaks of every full-size model of a zoo, plan by plan.

    python benchmarks/plans.py [DIR] [NAME…] [--json FILE]

DIR holds a folder per model with `model.onnx`; no weights are needed.  `plain` keeps everything as
differentiation leaves it, `keep` is what `gradtool grad` writes (less saved, nothing computed
twice), the others recompute.  Peaks are MiB of the whole arena, in brackets the most that
activations and workspaces take; `+` is what is computed again, in percent of the step's FLOPs.
Figures that MXNet 1.9.1 planned for networks of the same name stand below.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import gradtool as gt
from gradtool.planning.breakdown import activation_bytes
from gradtool.workloads import plans
from gradtool.workloads.strategies import STRATEGIES

ROOT = Path(__file__).resolve().parents[1]
MIB = 1 << 20
COLUMNS = ("plain", "keep", "mirror", "sqrt")
# MB without and with mirroring, batch and sizes as in MXNet's own scripts: only ratios compare.
MXNET = {
    "ResNet-50": (2772, 2980), "Inception-v3": (3176, 3046), "MobileNet": (1329, 1329),
    "DenseNet-121": (4165, 4092), "VGG-16": (2427, 3159), "LSTM, 2 layers": (470, 488),
}  # fmt: skip


def row(path: Path) -> dict[str, Any]:
    """Peak, activations, extra FLOPs and planning seconds of each plan of one model."""
    model = gt.load(path)
    plain = plans.workload(gt.grad(model, save_less=False).model)
    start = time.perf_counter()
    training = gt.grad(model).model
    found: dict[str, Any] = {"grad_seconds": time.perf_counter() - start}
    work = plans.workload(training)
    total = plans.total_flops(work.program)
    found |= {"steps": len(work.program.steps), "plain": _cell(plain.kept, 0.0, 0.0)}
    for name in COLUMNS[1:]:
        start = time.perf_counter()
        plan = STRATEGIES[name](work).plan
        seconds = time.perf_counter() - start
        extra = plans.extra_flops(plan, work.kept)
        found[name] = _cell(plan, seconds, None if extra is None else 100 * extra / max(total, 1))
    return found


def _cell(plan: Any, seconds: float, extra: float | None) -> dict[str, Any]:
    return {
        "peak": plan.peak,
        "load": plan.peak_live,
        "activations": activation_bytes(plan),
        "extra_percent": extra,
        "seconds": seconds,
    }


def line(name: str, found: dict[str, Any]) -> str:
    """One model in one line."""
    cells = []
    for column in COLUMNS:
        cell = found[column]
        extra = cell["extra_percent"]
        text = f"{cell['peak'] / MIB:9.1f} ({cell['activations'] / MIB:8.1f})"
        if column in COLUMNS[2:]:
            text += "   +? %" if extra is None else f" +{extra:5.2f} %"
        cells.append(text)
    seconds = sum(found[column]["seconds"] for column in COLUMNS[1:])
    return f"{name:<13}{found['steps']:>6} {' '.join(cells)} {seconds:6.1f} s"


def main() -> int:
    """Parse, plan, print; exit 1 if a plan takes more than keeping everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    zoo = ROOT.parent / "shared" / "zoo" / "full"
    parser.add_argument("zoo", type=Path, nargs="?", default=zoo)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    print(f"{'model':<13}{'steps':>6}" + "".join(f"{c:>21}" for c in COLUMNS))
    for folder in sorted(arguments.zoo.iterdir()):
        path = folder / "model.onnx"
        if path.exists() and (not arguments.names or folder.name in arguments.names):
            rows[folder.name] = row(path)
            print(line(folder.name, rows[folder.name]), flush=True)
    worse = _print_savings(rows)
    for network, (without, with_) in MXNET.items():
        saved = f"{_saved(with_, without):+6.1f} % saved"
        print(f"MXNet 1.9.1 {network:<15} {without} -> {with_} MB: {saved}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1, sort_keys=True), encoding="utf-8")
    return int(worse > 0)


def _print_savings(rows: dict[str, dict[str, Any]]) -> int:
    """Median and worst saving against plain and keep; how many plans take more than keep."""
    for column, base in (("keep", "plain"), ("mirror", "keep"), ("sqrt", "keep")):
        for what in ("peak", "activations"):
            saved = [_saved(r[column][what], r[base][what]) for r in rows.values()]
            print(
                f"{column} against {base}, {what}: saved {statistics.median(saved):.1f} % "
                f"(median), {min(saved):.1f} % (worst), {max(saved):.1f} % (best)"
            )
    worse = sum(r[c]["peak"] > r["keep"]["peak"] for r in rows.values() for c in COLUMNS[2:])
    print(f"{worse} plans take more than keep")
    return worse


def _saved(after: float, before: float) -> float:
    return 100 * (1 - after / before) if before else 0.0


if __name__ == "__main__":
    sys.exit(main())

"""Planned against measured peak of one step, model by model.

    python benchmarks/memory.py [DIR] [NAME…] [--json FILE]

DIR holds a folder per model with `model.onnx`, `inputs.npz` and `grads.npz` (whose keys say what to
differentiate by); the samples come first.  measured = where the last changed byte of the arena
lies + the most that Python and numpy held beside it during a step.  A row fails if that is more
than planned + 1 % + 256 KiB, or if poisoning dead buffers changes a result.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import gradtool as gt
from gradtool.exec.feeds import sizes
from gradtool.program.bind_dims import bound

ROOT = Path(__file__).resolve().parents[1]
SLACK = 256 * 1024


def cases(zoo: Path, names: list[str]) -> list[tuple[str, Path, Path, list[str] | None]]:
    """Name, model, inputs and what to differentiate by."""
    samples = ROOT / "samples"
    found: list[tuple[str, Path, Path, list[str] | None]] = [
        (p.stem, p, p.with_suffix(".npz"), None) for p in sorted(samples.glob("*.onnx"))
    ]
    for folder in sorted(p.parent for p in zoo.glob("*/grads.npz")):
        with np.load(folder / "grads.npz") as grads:
            found.append((folder.name, folder / "model.onnx", folder / "inputs.npz", grads.files))
    return [case for case in found if not names or case[0] in names]


def measured(model: Path, data: Path, wrt: list[str] | None) -> dict[str, Any]:
    """Plan, run and measure one model."""
    with np.load(data) as loaded:
        feeds = {n: loaded[n] for n in loaded.files}
    forward = gt.load(model)
    training = gt.grad(bound(forward, sizes(forward, feeds)), wrt=wrt)
    result = gt.run(training, feeds, measure=True, check_arena=True, copy=False)
    again = gt.run(training, feeds)
    same = all(result.gradients[n].tobytes() == g.tobytes() for n, g in again.gradients.items())
    m, plan = result.measurement, result.plan
    if m is None or plan is None:
        raise RuntimeError("the arena executor measures and plans")
    return {
        "planned": m.planned,
        "load": plan.peak_live,
        "arena": m.high_water,
        "outside": m.outside,
        "retained": m.retained,
        "measured": m.peak,
        "fits": m.peak <= m.planned * 1.01 + SLACK,
        "same_bits": same,
    }


def main() -> int:
    """Parse, run, print; the exit code says whether a row failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "zoo", type=Path, nargs="?", default=ROOT.parent / "shared" / "zoo" / "small"
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows, failed = [], 0
    print(
        f"{'model':<20}{'planned KiB':>13}{'arena KiB':>12}{'outside KiB':>13}"
        f"{'measured KiB':>14}{'ratio':>8}  verdict"
    )
    for name, model, data, wrt in cases(arguments.zoo, arguments.names):
        try:
            row = {"model": name} | measured(model, data, wrt)
        except gt.GradtoolError as error:
            rows.append({"model": name, "error": str(error)})
            failed += 1
            print(f"{name:<20}  {error}")
            continue
        rows.append(row)
        ok = row["fits"] and row["same_bits"]
        failed += not ok
        k = {n: row[n] / 1024 for n in ("planned", "arena", "outside", "measured")}
        print(
            f"{name:<20}{k['planned']:>13.1f}{k['arena']:>12.1f}{k['outside']:>13.1f}"
            f"{k['measured']:>14.1f}{row['measured'] / max(row['planned'], 1):>8.3f}  "
            f"{'ok' if ok else 'FAIL'}",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Arena against load, on hard public cases or on the training graphs of a zoo.

    python benchmarks/pack_arena.py FILE.csv… [--capacity C] [--time-limit S] [--json FILE]
    python benchmarks/pack_arena.py --zoo [DIR] [--json FILE]

A file has the columns id, lower, upper and size, with half-open lifetimes and no alignment; it is
packed with far more work than a plan takes.  The time limit is counted work of the last search,
about that many seconds, so the result is the same on any machine.  A zoo is packed as planning
does it; DIR holds a folder per model with `model.onnx`.  The exit code is 1 if, of the zoo, fewer
than 95 of 100 arenas are proven least, or one takes over a second.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from pathlib import Path
from typing import Any

from gradtool.planning.packing import Effort, Packing, pack, place

ROOT = Path(__file__).resolve().parents[1]
WORK_PER_SECOND = 700_000
FILLING, REPEATING = 175_000_000, 400_000_000
SHARE = 0.95
SECONDS = 1.0


def file_row(path: Path, capacity: int | None, seconds: float) -> dict[str, Any]:
    """Pack one file."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    sizes, lower, upper = ([int(r[k]) for r in rows] for k in ("size", "lower", "upper"))
    effort = Effort(int(seconds * WORK_PER_SECOND), FILLING, REPEATING)
    begun = time.perf_counter()
    packing = pack(sizes, lower, [u - 1 for u in upper], capacity=capacity, effort=effort)
    return row(path.name, len(sizes), packing, time.perf_counter() - begun)


def zoo_row(path: Path) -> dict[str, Any]:
    """Pack what moves in the training graph of one model."""
    import gradtool as gt
    from gradtool.planning.liveness import lifetimes
    from gradtool.planning.plan import ALWAYS_LIVE
    from gradtool.program.flatten import flatten

    program = flatten(gt.grad(gt.load(path)).model, dims={})
    buffers = [b for b in lifetimes(program) if b.region not in ALWAYS_LIVE]
    begun = time.perf_counter()
    packing = place(buffers)
    return row(path.parent.name, len(buffers), packing, time.perf_counter() - begun)


def row(name: str, buffers: int, packing: Packing, seconds: float) -> dict[str, Any]:
    """What is printed of a packing; sizes in bytes, the excess over the load in per cent."""
    excess = 100 * (packing.size / packing.peak_live - 1) if packing.peak_live else 0.0
    return {
        "name": name,
        "buffers": buffers,
        "load": packing.peak_live,
        "size": packing.size,
        "excess": round(excess, 4),
        "proven": packing.proven,
        "seconds": round(seconds, 3),
        "how": packing.how,
    }


def main() -> int:
    """Parse, run, print; the exit code says whether the zoo met its limits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--capacity", type=int, help="a size to try early")
    parser.add_argument("--time-limit", type=float, default=60.0, help="about so many seconds")
    parser.add_argument("--zoo", action="store_true", help="the files are a folder of models")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    if arguments.zoo:
        folder = arguments.files[0] if arguments.files else ROOT.parent / "shared" / "zoo" / "full"
        jobs = [(zoo_row, (path,)) for path in sorted(folder.glob("*/model.onnx"))]
    else:
        limits = arguments.capacity, arguments.time_limit
        jobs = [(file_row, (path, *limits)) for path in arguments.files]
    print(f"{'name':<20}{'buffers':>8}{'load':>14}{'size':>14}{'excess':>9}{'seconds':>9}  how")
    for make, given in jobs:
        made = make(*given)
        rows.append(made)
        said = f"{made['how']}{', proven' if made['proven'] else ''}"
        print(
            f"{made['name']:<20}{made['buffers']:>8}{made['load']:>14}{made['size']:>14}"
            f"{made['excess']:>8.3f}%{made['seconds']:>9.2f}  {said}",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    proven = sum(r["proven"] for r in rows)
    print(f"{proven} of {len(rows)} proven least")
    slow = any(r["seconds"] > SECONDS for r in rows)
    return int(arguments.zoo and (proven < SHARE * len(rows) or slow))


if __name__ == "__main__":
    sys.exit(main())

"""The best order of a planning instance without recompute: its peak and the proven bound.

    python benchmarks/order_graph.py FILE.json [--effort 4] [--json]
    python benchmarks/order_graph.py --all DIR [--effort 4] [--json]

Peak and bound are in bytes and in % of the peak of the given order; proven means that they are
equal. Seconds are those of the search alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from instances import read

from gradtool.planning.orders.best import best_order
from gradtool.planning.simulate import Simulator


def measured(path: Path, effort: int) -> dict[str, Any]:
    """Order one instance."""
    program = read(path)
    given = Simulator(program).peak(range(len(program.steps)))
    start = time.perf_counter()
    found = best_order(program, effort=effort)
    seconds = time.perf_counter() - start
    return {
        "name": path.stem,
        "steps": len(program.steps),
        "given": given,
        "peak": found.peak,
        "peak_percent": round(100 * found.peak / given, 3),
        "bound": found.bound,
        "bound_percent": round(100 * found.bound / given, 3),
        "proven": found.proven,
        "how": found.how,
        "seconds": round(seconds, 2),
    }


def line(row: dict[str, Any]) -> str:
    """One row of the table."""
    proven = "proven" if row["proven"] else ""
    return (
        f"{row['name']:12}{row['steps']:7}{row['peak']:14}{row['peak_percent']:9.3f}"
        f"{row['bound_percent']:9.3f}  {proven:7}{row['how']:22}{row['seconds']:7.2f}"
    )


def main() -> None:
    """Measure one instance, or those of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--all", type=Path, metavar="DIR")
    parser.add_argument("--effort", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if (arguments.file is None) == (arguments.all is None):
        parser.error("give a file or --all DIR")
    paths = [arguments.file] if arguments.all is None else sorted(arguments.all.glob("*.json"))
    if not arguments.json:
        print(
            "name          steps          peak   peak %  bound %  proven how", " " * 13, "seconds"
        )
    rows = []
    for path in paths:
        rows.append(measured(path, arguments.effort))
        if not arguments.json:
            print(line(rows[-1]), flush=True)
    if arguments.json:
        print(json.dumps(rows if arguments.all else rows[0], indent=2))


if __name__ == "__main__":
    main()

"""The cheapest schedule of a planning instance within a budget, with a bound on the extra work.

    python benchmarks/plan_graph.py FILE.json [--budget 0.8] [--effort 1] [--seed 0] [--json]
    python benchmarks/plan_graph.py --all DIR [--effort 1]

A budget is a fraction of the peak of the given order, or bytes.  Work is counted, so a plan is the
same everywhere.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import instances
from cheapest import cheapest

from gradtool.errors import OverBudget
from gradtool.planning.search.context import SearchContext
from gradtool.planning.simulate import Simulator
from gradtool.program import Program

FRACTIONS = (0.9, 0.8, 0.7, 0.5, 0.25)


def row(program: Program, fraction: float, effort: float, seed: int) -> dict[str, Any]:
    """What one budget costs, as JSON."""
    given = Simulator(program).peak(range(len(program.steps)))
    budget = math.ceil(fraction * given) if fraction <= 1 else int(fraction)
    start = time.perf_counter()
    try:
        answer = cheapest(program, budget, SearchContext(effort=effort, seed=seed))
    except OverBudget as error:
        return {"budget_bytes": budget, "error": str(error), "seconds": time.perf_counter() - start}
    return {
        "schedule": list(answer.schedule.order),
        "budget_bytes": budget,
        "peak_bytes": answer.peak,
        "peak_percent": 100 * answer.peak / given,
        "extra_percent": answer.percent(answer.extra),
        "bound_percent": answer.percent(answer.bound),
        "gap_percent": answer.percent(answer.gap),
        "which_bound": answer.which_bound,
        "how": answer.how,
        "seconds": time.perf_counter() - start,
    }


def show(name: str, fraction: float, found: dict[str, Any]) -> str:
    """A line of the table."""
    head = f"{name:<12}{100 * fraction:>7.0f} %"
    if "error" in found:
        return f"{head}  {found['error']}  ({found['seconds']:.1f} s)"
    return (
        f"{head}{found['peak_percent']:>9.2f}{found['extra_percent']:>9.3f}"
        f"{found['bound_percent']:>9.3f}{found['gap_percent']:>9.3f}{found['seconds']:>8.1f}  "
        f"{found['how']}; {found['which_bound']}"
    )


def main() -> int:
    """Plan one budget, or all graphs at all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--all", type=Path, metavar="DIR")
    parser.add_argument("--budget", type=float, default=0.8)
    parser.add_argument("--effort", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    if a.all is None and a.file is None:
        parser.error("FILE.json or --all DIR is needed")
    files = sorted(a.all.glob("*.json")) if a.all else [a.file]
    if not a.json:
        print(
            f"{'graph':<12}{'budget':>9}{'peak %':>9}{'extra %':>9}{'bound %':>9}{'gap':>9}{'s':>8}"
        )
    failed = 0
    for path in files:
        program = instances.read(path)
        for fraction in FRACTIONS if a.all else (a.budget,):
            found = row(program, fraction, a.effort, a.seed)
            failed += "error" in found
            print(json.dumps(found) if a.json else show(path.stem, fraction, found), flush=True)
    return 1 if failed and not a.all else 0


if __name__ == "__main__":
    sys.exit(main())

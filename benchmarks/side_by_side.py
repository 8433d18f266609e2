"""Ways to recompute side by side: what each saves and costs, and the optimum at the same peak.

    python benchmarks/side_by_side.py [MODEL.onnx | GRAPH.json …] [--effort 0.1] [--json]

All rows of a network are schedules of one program, weighed by one simulator: bytes alive in % of
keeping everything, and what runs again in % of one step's FLOPs.  `sqrt` is Chen's √n segments,
`mirror` MXNet's (Echo), `torch` what PyTorch's min-cut partitioner keeps for backward with an
activation memory budget, the rest run again where backward needs it.  Beside each stands the least
extra work that the planner finds within the peak of that row, and the bound of it.

PyTorch saves other things than values of the file at times (statistics of a normalisation, masks);
these are not counted, and what runs again there is counted as the whole operator.  Planning
instances (JSON) name no operators, so that neither mirror nor PyTorch can be asked.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import instances
from cheapest import cheapest

import gradtool as gt
from gradtool.errors import OverBudget
from gradtool.planning.recompute.late_clones import late
from gradtool.planning.recompute.mirror import decide
from gradtool.planning.recompute.mirrored import mirrored
from gradtool.planning.recompute.policy import POLICIES
from gradtool.planning.recompute.result import Outcome, outcome
from gradtool.planning.recompute.segment_search import sqrt_segments
from gradtool.planning.schedule import RECOMPUTED
from gradtool.planning.search.context import SearchContext
from gradtool.planning.simulate import Simulator
from gradtool.program import Program
from gradtool.workloads import plans

ZOO = Path(__file__).resolve().parents[2] / "shared" / "zoo" / "full"
BUDGETS = (1.0, 0.5, 0.2)
NAMES = ("resnet18", "unet", "gpt2")


def ways(path: Path) -> tuple[Program, dict[str, Outcome]]:
    """The program of one network, and what each way to recompute makes of it."""
    if path.suffix == ".json":
        program = instances.read(path)
        return program, {"sqrt": sqrt_segments(program).outcome}
    work = plans.workload(gt.grad(gt.load(path), save_less=False).model)
    program = work.program
    decision = decide(work.nodes, POLICIES["mirror"])
    found = {
        "sqrt": sqrt_segments(program).outcome,
        "mirror": mirrored(program, decision).outcome,
    }
    if find_spec("torch") is not None:
        found |= {f"torch {budget}": by_torch(program, path, budget) for budget in BUDGETS}
    return program, found


def by_torch(program: Program, path: Path, budget: float) -> Outcome:
    """What PyTorch saves replayed: every other forward step runs again where backward needs it."""
    from torch_min_cut import saved

    names = saved(path, budget)
    kept = {program.storage(i) for i, value in enumerate(program.values) if value.name in names}
    again = {
        number: RECOMPUTED
        for number, step in enumerate(program.steps)
        if step.stage == "forward" and step.recomputable and kept.isdisjoint(step.writes)
    }
    return outcome(Simulator(program), late(program, again, kept))


def rows(path: Path, effort: float) -> Iterator[dict[str, Any]]:
    """The rows of one network."""
    program, found = ways(path)
    name = path.stem if path.suffix == ".json" else path.parent.name
    for way, result in found.items():
        row = {
            "network": name,
            "steps": len(program.steps),
            "way": way,
            "keep_bytes": result.keep_peak,
            "peak_percent": 100 * result.peak / result.keep_peak,
            "extra_percent": result.extra_percent,
        }
        try:
            best = cheapest(program, result.peak, SearchContext(effort=effort))
            row |= {
                "optimal_percent": best.percent(best.extra),
                "bound_percent": best.percent(best.bound),
            }
        except OverBudget as error:
            row["error"] = str(error)
        yield row


def line(row: dict[str, Any]) -> str:
    """A line of the table."""
    head = f"{row['network']:<12}{row['steps']:>6}  {row['way']:<10}{row['peak_percent']:>8.2f}"
    extra = row["extra_percent"]
    head += "       ?" if extra is None else f"{extra:>9.3f}"
    if "error" in row:
        return f"{head}  {row['error']}"
    return f"{head}{row['optimal_percent']:>10.3f}{row['bound_percent']:>9.3f}"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--effort", type=float, default=0.1)
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    files = a.files or [ZOO / name / "model.onnx" for name in NAMES]
    if not a.json:
        if find_spec("torch") is None:
            print("no rows of PyTorch: it is not installed")
        print(
            f"{'network':<12}{'steps':>6}  {'way':<10}{'peak %':>8}{'extra %':>9}"
            f"{'optimal %':>10}{'bound %':>9}"
        )
    for path in files:
        for row in rows(path, a.effort):
            print(json.dumps(row) if a.json else line(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

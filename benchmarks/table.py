"""What the planner answers and what that takes: every full-size model of a zoo, every instance.

    python benchmarks/table.py [NAME…] [--zoo DIR] [--graphs DIR] [--json FILE] [--against FILE]

For each training graph of DIR/NAME/model.onnx the least peak found for at most 0, 2, 5, 10, 20 and
33 % extra work, in % of keeping everything; the extra work within 80, 50 and 35 % of that peak, in
% of a step; and seconds of processor time, for the six shares together and for each budget.  For
each planning instance DIR/NAME.json the extra work within 90, 80, 50, 35 and 25 %.  With
`--against` also what is worse by more than half a point than in an earlier file, and exit 1 if
anything is.  `benchmarks/table.json` holds the figures of the planner that searched anew for every
budget, of graphs that keep the probabilities of attention: so these are planned here.  Each budget
is asked as by a command of its own; the shares are asked of one frontier.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import instances
from cheapest import cheapest

import gradtool as gt
from gradtool.errors import OverBudget
from gradtool.planning.simulate import Simulator
from gradtool.program import Program
from gradtool.workloads import plans
from gradtool.workloads.budgets.limits import Budget
from gradtool.workloads.budgets.search import at_most, within

SHARED = Path(__file__).resolve().parents[2] / "shared"
SHARES = (0, 2, 5, 10, 20, 33)
BUDGETS = (80, 50, 35)
INSTANCE_BUDGETS = (90, 80, 50, 35, 25)
WORSE = 0.5  # points

Figures = dict[str, float | None]


def of_model(path: Path) -> Figures:
    """The figures of one training graph."""
    work = plans.workload(gt.grad(gt.load(path), fuse_attention=False).model)
    figures: Figures = {"steps": len(work.program.steps), "keep MiB": work.kept.peak / 2**20}
    start = time.process_time()
    found = [at_most(work, Fraction(share, 100)) for share in SHARES]
    figures["seconds of shares"] = time.process_time() - start
    for share, each in zip(SHARES, found, strict=True):
        figures[f"peak at {share} %"] = 100 * each.peak / work.kept.peak
    for percent in BUDGETS:
        start = time.process_time()
        figures[f"work within {percent} %"] = _work(work, percent)
        figures[f"seconds of {percent} %"] = time.process_time() - start
    return figures


def _work(work: plans.Workload, percent: int) -> float | None:
    work.memo.clear()
    try:
        proof = within(work, Budget.of(f"{percent}%")).proof
    except OverBudget:
        return None
    return 100 * proof.share(proof.extra) if proof else 0.0


def of_instance(program: Program) -> Figures:
    """The figures of one planning instance."""
    given = Simulator(program).peak(range(len(program.steps)))
    figures: Figures = {"steps": len(program.steps)}
    for percent in INSTANCE_BUDGETS:
        start = time.process_time()
        try:
            answer = cheapest(program, math.ceil(Fraction(percent, 100) * given))
            figures[f"work within {percent} %"] = answer.percent(answer.extra)
        except OverBudget:
            figures[f"work within {percent} %"] = None
        figures[f"seconds of {percent} %"] = time.process_time() - start
    return figures


def measured(zoo: Path, graphs: Path, names: list[str]) -> Iterator[tuple[str, Figures]]:
    """The figures of each model and of each instance, by name."""
    for path in sorted(zoo.glob("*/model.onnx")):
        if not names or path.parent.name in names:
            yield path.parent.name, of_model(path)
    for path in sorted(graphs.glob("*.json")):
        if not names or f"graph {path.stem}" in names:
            yield f"graph {path.stem}", of_instance(instances.read(path))


def lines(name: str, figures: Figures) -> Iterator[str]:
    """A table of two columns a figure, as short as it can be."""
    said = (f"{k} {'none' if v is None else f'{v:.3g}'}" for k, v in figures.items())
    yield f"{name}: {', '.join(said)}"


def worse(figures: Figures, before: Figures) -> Iterator[str]:
    """What has become worse by more than half a point: a peak, or work.

    Peaks are in % of what keeping everything took in the earlier file.  Where that was more, work
    within a share of it is not comparable.
    """
    kept = (figures.get("keep MiB") or 1) / (before.get("keep MiB") or 1)
    for figure, value in figures.items():
        old = before.get(figure)
        if not figure.startswith(("peak", "work")[: 2 if kept > 0.99 else 1]) or old is None:
            continue
        scale = kept if figure.startswith("peak") else 1
        now = None if value is None else scale * value
        if now is None or now > old + WORSE:
            yield f"{figure}: {old:.2f} before, {'none' if now is None else f'{now:.2f}'} now"


def main() -> int:
    """Measure, print, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--zoo", type=Path, default=SHARED / "zoo" / "full")
    parser.add_argument("--graphs", type=Path, default=SHARED / "graphs" / "remat")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--against", type=Path)
    arguments = parser.parse_args()
    before: dict[str, Any] = {}
    if arguments.against:
        before = json.loads(arguments.against.read_text(encoding="utf-8"))
    found: dict[str, Figures] = {}
    lost = 0
    for name, figures in measured(arguments.zoo, arguments.graphs, arguments.names):
        found[name] = figures
        for line in lines(name, figures):
            print(line, flush=True)
        for line in worse(figures, before.get(name, {})):
            lost += 1
            print(f"  worse: {line}", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    if before:
        print(f"{len(found)} graphs, {lost} figures worse by more than {WORSE} points")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())

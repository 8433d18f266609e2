"""The ladder of budgets beside the planner that searches anew: least peaks, work, seconds.

    python benchmarks/ladder.py [NAME…] [--zoo DIR] [--graphs DIR] [--against FILE]

For each training graph of DIR/NAME/model.onnx and each planning instance DIR/NAME.json the figures
of `benchmarks/planner.py`, in bytes alive (nothing is packed), from one ladder a graph; with
`--against` also what is worse by more than half a point than in a file of that benchmark, such as
`benchmarks/planner.json`, and exit 1 if anything is.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from planner import BUDGETS, INSTANCE_BUDGETS, SHARED, SHARES, Figures, lines, worse

import gradtool as gt
from gradtool.planning import instances
from gradtool.planning.ladder.rungs import Ladder
from gradtool.planning.orders.best import best_order
from gradtool.planning.recompute.segment_search import best_segments, segment_schedules
from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.simulate import Simulator
from gradtool.program import Program
from gradtool.workloads import plans

ORDERED = 4_000  # steps of a program whose order is worth a search


def ladder_of(program: Program, order: Sequence[int], *, segments: bool) -> Ladder:
    """The ladder of a program whose steps first run in an order."""
    place = {step: p for p, step in enumerate(order)}
    known = CostModel(program, None, order)
    recipes = []
    if segments:
        found = [*segment_schedules(program), best_segments(program).outcome.schedule]
        recipes = [[place[s] for s in schedule.order] for schedule in found]
    return Ladder(program, SearchContext(), order, [r for r in recipes if known.runs(r)])


def figures_of(program: Program, keep: int, order: Sequence[int], *, trained: bool) -> Figures:
    """The figures of a program, whose given order takes `keep` bytes."""
    figures: Figures = {"steps": len(program.steps)}
    start = time.process_time()
    ladder = ladder_of(program, order, segments=trained)
    total = max(ladder.work.total, 1)
    for share in SHARES if trained else ():
        best = ladder.at_most(int(Fraction(share, 100) * total))[0]
        figures[f"peak at {share} %"] = 100 * min(best.peak, keep) / keep
    for percent in BUDGETS if trained else INSTANCE_BUDGETS:
        fits = ladder.within(int(Fraction(percent, 100) * keep))
        figures[f"work within {percent} %"] = 100 * fits[0].extra / total if fits else None
    figures["seconds"] = time.process_time() - start
    return figures


def of_model(path: Path) -> Figures:
    """The figures of one training graph."""
    work = plans.workload(gt.grad(gt.load(path)).model)
    steps = len(work.program.steps)
    order: Sequence[int] = range(steps)
    if steps <= ORDERED and work.ordered.peak < work.kept.peak_live:
        order = work.ordered.order
    return figures_of(work.program, work.kept.peak_live, order, trained=True)


def of_instance(path: Path) -> Figures:
    """The figures of one planning instance."""
    program = instances.read(path)
    keep = Simulator(program).peak(range(len(program.steps)))
    return figures_of(program, keep, best_order(program).order, trained=False)


def measured(zoo: Path, graphs: Path, names: list[str]) -> Iterator[tuple[str, Figures]]:
    """The figures of each model and of each instance, by name."""
    for path in sorted(zoo.glob("*/model.onnx")):
        if not names or path.parent.name in names:
            yield path.parent.name, of_model(path)
    for path in sorted(graphs.glob("*.json")):
        if not names or f"graph {path.stem}" in names:
            yield f"graph {path.stem}", of_instance(path)


def main() -> int:
    """Measure, print, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--zoo", type=Path, default=SHARED / "zoo" / "full")
    parser.add_argument("--graphs", type=Path, default=SHARED / "graphs" / "remat")
    parser.add_argument("--against", type=Path)
    arguments = parser.parse_args()
    before: dict[str, Any] = {}
    if arguments.against:
        before = json.loads(arguments.against.read_text(encoding="utf-8"))
    lost = count = 0
    for name, figures in measured(arguments.zoo, arguments.graphs, arguments.names):
        count += 1
        for line in lines(name, figures):
            print(line, flush=True)
        for line in worse(figures, before.get(name, {})):
            lost += 1
            print(f"  worse: {line}", flush=True)
    print(f"{count} graphs, {lost} figures worse by more than half a point")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())

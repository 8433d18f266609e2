"""How far plans are from what is proven: a table of gaps, on full-size models and instances.

    python benchmarks/gaps.py [NAME…] [--zoo DIR] [--graphs DIR] [--seconds S] [--quick]

For each training graph of DIR/NAME/model.onnx the plans of least peak for 5, 10 and 20 % extra
work, each with the bound of the budget that it takes; for each planning instance DIR/NAME.json the
plans within 90, 80, 70 and 50 % of the given order's peak.  A proof takes S seconds at most (60);
--quick has 10 and leaves out what has more than 700 steps.  Work is in % of one step, gaps in
points of that; seconds are processor time.  Where a gap is above 5 points, what the bound lacks is
said.  Exit 1 if a bound is above the work of a plan.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import instances

import gradtool as gt
from gradtool.planning.orders.best import best_order
from gradtool.planning.pareto.budget_points import BudgetPoints
from gradtool.planning.pareto.frontier import Frontier
from gradtool.planning.search.certificate import certificates
from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.prove import rounds
from gradtool.planning.simulate import Simulator
from gradtool.workloads import plans
from gradtool.workloads.budgets.budget_queries import Answers

SHARED = Path(__file__).resolve().parents[2] / "shared"
SHARES = (5, 10, 20)
BUDGETS = (90, 80, 70, 50)
LARGE = 5.0  # points above which it is said what a bound lacks
SECONDS, QUICK = 60.0, 10.0
FEW = 700  # steps of what --quick looks at


class Row(NamedTuple):
    """A question; budget, work of the plan and bound in %; gap in points; and processor time."""

    name: str
    question: str
    budget: float
    plan: float
    bound: float
    seconds: float
    lacks: str

    @property
    def gap(self) -> float:
        """Points between the plan and the bound."""
        return self.plan - self.bound

    def line(self) -> str:
        """The row of a Markdown table."""
        lacks = self.lacks if self.gap > LARGE else ""
        figures = f"{self.budget:.2f} | {self.plan:.3f} | {self.bound:.3f} | {self.gap:.3f}"
        return f"| {self.name} | {self.question} | {figures} | {self.seconds:.0f} | {lacks} |"


def proven(
    work: CostModel, budget: int, places: Sequence[int], seconds: float
) -> tuple[int, int, str]:
    """Extra work of the best schedule, the bound, and what that lacks."""
    extra, bound, lacks = work.work_again(places), 0, "an instant that pinches"
    for certificate in certificates(work, budget, 0.1) if extra else ():
        bound = max(bound, certificate.bound if certificate else 0)
    for each in rounds(work, budget, places, seconds) if extra > bound else ():
        bound, lacks = max(bound, each.bound or 0), each.lacks
        if each.found is not None:
            extra = work.work_again(each.found)
    return extra, bound, lacks


def of_model(path: Path, seconds: float, most: float) -> Iterator[Row]:
    """The rows of one training graph."""
    work = plans.workload(gt.grad(gt.load(path)).model)
    if len(work.program.steps) > most:
        return
    answers = Answers(work)
    place = {step: p for p, step in enumerate(answers.order)}
    total = max(answers.total, 1)
    for share in SHARES:
        start = time.process_time()
        found = answers.at_most(int(Fraction(share, 100) * total))
        places = [place[step] for step in found.schedule.order]
        model, peak = answers.known.work, found.plan.peak
        extra, bound, lacks = proven(model, peak, places, seconds)
        spent = time.process_time() - start
        budget = 100 * peak / answers.kept.plan.peak
        work_of = 100 * extra / total, 100 * bound / total
        yield Row(path.parent.name, f"{share} % work", budget, *work_of, spent, lacks)


def of_instance(path: Path, seconds: float, most: float) -> Iterator[Row]:
    """The rows of one planning instance; none for budgets in which no plan was found."""
    program = instances.read(path)
    if len(program.steps) > most:
        return
    given = Simulator(program).peak(range(len(program.steps)))
    points = BudgetPoints(CostModel(program, None, best_order(program).order), SearchContext())
    frontier = Frontier(points)
    for percent in BUDGETS:
        start = time.process_time()
        budget = math.ceil(Fraction(percent, 100) * given)
        found = frontier.within(budget)
        if found is not None:
            extra, bound, lacks = proven(points.work, budget, found.places, seconds)
            spent, total = time.process_time() - start, max(points.work.total, 1)
            figures = percent, 100 * extra / total, 100 * bound / total
            yield Row(f"graph {path.stem}", f"{percent} %", *figures, spent, lacks)


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """The rows of all instances and models that are named."""
    seconds = arguments.seconds or (QUICK if arguments.quick else SECONDS)
    most = FEW if arguments.quick else math.inf
    for path in sorted(arguments.graphs.glob("*.json")):
        if not arguments.names or f"graph {path.stem}" in arguments.names:
            yield from of_instance(path, seconds, most)
    for path in sorted(arguments.zoo.glob("*/model.onnx")):
        if not arguments.names or path.parent.name in arguments.names:
            yield from of_model(path, seconds, most)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--zoo", type=Path, default=SHARED / "zoo" / "full")
    parser.add_argument("--graphs", type=Path, default=SHARED / "graphs" / "remat")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    print("| instance | question | budget % | plan % | bound % | gap | s | lacks |")
    print("|---|---|---|---|---|---|---|---|")
    gaps = []
    for row in rows(arguments):
        print(row.line(), flush=True)
        gaps.append(row.gap)
    if gaps:
        print(f"{len(gaps)} gaps: median {statistics.median(gaps):.3f}, worst {max(gaps):.3f}")
    return int(any(gap < 0 for gap in gaps))


if __name__ == "__main__":
    sys.exit(main())

"""Numbers printed as tables, with a view in notebooks."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradtool.planning.plan import TEMPORARIES
from gradtool.reports import comparison, explanation, frontier, memory
from gradtool.text.names import escape
from gradtool.text.table import Table, html, render
from gradtool.workloads.planned import Planned

if TYPE_CHECKING:
    from gradtool.comparison import Comparison
    from gradtool.planning.plan import Plan
    from gradtool.planning.recompute.value_facts import Facts

TOP = 12


class Shown(ABC):
    """A result that consists of tables and lines below them."""

    @abstractmethod
    def tables(self) -> list[Table]:
        """The tables, in order."""

    def lines(self) -> list[str]:
        """The lines below the tables."""
        return []

    def __str__(self) -> str:
        from rich.console import Console

        from gradtool.reports.console import HEIGHT, UNBOUNDED

        stream = io.StringIO()
        console = Console(file=stream, width=UNBOUNDED, height=HEIGHT, color_system=None)
        for number, table in enumerate(self.tables()):
            if number:
                stream.write("\n")
            render(table, console)
        stream.writelines(f"{escape(line)}\n" for line in self.lines())
        return stream.getvalue().rstrip("\n")

    def _repr_html_(self) -> str:
        below = "".join(f"<div>{escape(line, 'html')}</div>\n" for line in self.lines())
        return "".join(map(html, self.tables())) + below


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A plan in numbers.  Bytes, but for `steps`; all but `peak` are those at the peak step.

    `model` is the name of the graph.  `activations`, `parameters` and `gradients` are regions of
    the plan; `temporaries` are backward's values beside gradients of parameters.
    """

    model: str
    peak: int
    activations: int
    parameters: int
    gradients: int
    steps: int
    temporaries: int = 0


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """The planned memory of several graphs side by side.

    Attributes:
        rows: numbers of a graph each, bytes at the peak step.
        plans: the plans that they are of.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        gt.report([training]).rows[0].activations  # bytes
    """

    rows: tuple[ReportRow, ...]
    plans: tuple[Plan, ...]

    @classmethod
    def of(cls, plans: Sequence[Plan], names: Sequence[str]) -> Report:
        """The report of plans.

        Args:
            plans: one for each row.
            names: of the rows.
        """
        return cls(tuple(map(_row, plans, names)), tuple(plans))

    def __iter__(self) -> Iterator[ReportRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> ReportRow:
        return self.rows[place]

    def __repr__(self) -> str:
        return f"Report({', '.join(f'{row.model!r}: {row.peak} bytes' for row in self.rows)})"

    def tables(self) -> list[Table]:
        """A table of bytes with a row a plan."""
        return [memory.plans_table(self.plans, [row.model for row in self.rows])]


@dataclass(frozen=True, repr=False)
class Compared(Shown):
    """The differences of two planned steps.

    Attributes:
        found: the numbers.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        moved = gt.compare(training, gt.mirror(training))
        [(row.name, row.delta) for row in moved.found.totals]  # bytes
    """

    found: Comparison

    def __repr__(self) -> str:
        return f"Compared({self.found.before.name!r}, {self.found.now.name!r})"

    def __getitem__(self, name: str) -> int:
        """The change of a total of the whole step, as in `compared["peak"]`."""
        return {row.name: row.delta for row in self.found.totals}[name]

    def tables(self) -> list[Table]:
        """The whole step, then the parts with a difference: tables of bytes and counts."""
        return list(comparison.tables(self.found, TOP))

    def lines(self) -> list[str]:
        """The unchanged parts, and the unknown ones."""
        return comparison.closing_lines(self.found)


@dataclass(frozen=True, repr=False)
class Explained(Shown):
    """Why a value is kept or computed again.

    Attributes:
        facts: the numbers.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        gt.explain(training, "stem.relu.out").facts.value
    """

    facts: Facts

    def __repr__(self) -> str:
        return f"Explained({self.facts.value!r})"

    def tables(self) -> list[Table]:
        """An empty list: it is said in words."""
        return []

    def lines(self) -> list[str]:
        """The facts, a line each."""
        return explanation.lines(self.facts)


@dataclass(frozen=True, repr=False)
class Frontier(Shown):
    """The cheapest plans within several budgets.

    Budgets of the points' proofs and peaks of their plans are those of the arena: the state comes
    on top of both.

    Attributes:
        points: each with its `plan` and `proof`.
        kept: the plan that keeps everything.
        state: bytes of the state of an optimizer.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        for point in gt.frontier(training, points=2, strategy="min-cut"):
            point.proof.budget, point.plan.peak  # bytes
    """

    points: tuple[Planned, ...]
    kept: Plan
    state: int = 0

    def __iter__(self) -> Iterator[Planned]:
        return iter(self.points)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, place: int) -> Planned:
        return self.points[place]

    def __repr__(self) -> str:
        peaks = [point.plan.peak + self.state for point in self.points]
        return f"Frontier({len(peaks)} plans, {min(peaks)} to {max(peaks)} bytes)"

    def tables(self) -> list[Table]:
        """A table with a row a budget: bytes, and extra work in FLOPs or time."""
        return [frontier.frontier_table(self.points, self.kept, self.state)]

    def lines(self) -> list[str]:
        """A bar for the extra work of each budget."""
        return frontier.plot(self.points, self.state)


def _row(plan: Plan, name: str) -> ReportRow:
    regions = plan.regions(plan.peak_step)
    return ReportRow(
        name,
        int(plan.peak),
        int(regions.get("activations", 0)),
        int(regions.get("parameters", 0)),
        int(regions.get("gradients", 0)),
        len(plan.program.steps),
        int(regions.get(TEMPORARIES, 0)),
    )

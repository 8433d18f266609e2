"""Time of kernels, operator by operator, against the machine's roofs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gradtool.program import Step
from gradtool.program.roofline import Reach, rate
from gradtool.text.layout import Column
from gradtool.text.table import Table
from gradtool.text.units import format_seconds

MOST = 15  # operators in a table on a terminal


@dataclass(frozen=True)
class Kernel:
    """Runs of one operator: how many, their seconds, operations and bytes.

    `least` are the seconds that they would take at the roofs, those of steps without operations and
    bytes counted as they are.
    """

    op: str
    runs: int
    seconds: float
    flops: int
    moved: int
    least: float

    @property
    def roof(self) -> float:
        """The share of the roof, 1 at the roof."""
        return self.least / self.seconds if self.seconds else 1.0


def by_operator(
    steps: Sequence[Step], seconds: Sequence[float], reach: Reach | None
) -> list[Kernel]:
    """The kernels of some steps, the slowest first."""
    found: dict[str, list[tuple[Step, float]]] = {}
    for step, taken in zip(steps, seconds, strict=True):
        found.setdefault(step.op, []).append((step, taken))
    kernels = [_kernel(op, members, reach) for op, members in found.items()]
    return sorted(kernels, key=lambda kernel: (-kernel.seconds, kernel.op))


def _kernel(op: str, members: Iterable[tuple[Step, float]], reach: Reach | None) -> Kernel:
    members = list(members)
    return Kernel(
        op,
        len(members),
        sum(seconds for _, seconds in members),
        sum(step.flops or 0 for step, _ in members),
        sum(step.moved for step, _ in members),
        sum(_least(step, seconds, reach) for step, seconds in members),
    )


def _least(step: Step, seconds: float, reach: Reach | None) -> float:
    """The seconds of a step at the roof above it."""
    found = reach and rate(step.flops, step.moved, seconds, reach)
    return seconds * found.share if found else seconds


def roofline_table(
    kernels: Sequence[Kernel], reach: Reach | None, most: int | None = MOST
) -> Table:
    """A row for each operator, the longest first; those beyond `most` are put together."""
    whole = sum(kernel.seconds for kernel in kernels) or 1.0
    shown = kernels if most is None else kernels[:most]
    rows = [_row(kernel, whole, reach) for kernel in shown]
    rest = kernels[len(shown) :]
    footer = []
    if rest:
        footer.append(f"and {len(rest)} more: {format_seconds(sum(k.seconds for k in rest))}")
    if reach is not None:
        footer.append(
            f"this machine reaches {reach.flops / 1e9:.1f} GFLOP/s in a matrix product and "
            f"{reach.bytes / 1e9:.1f} GB/s in a copy, on these kernels"
        )
    return Table(columns=_columns(), rows=tuple(rows), footer="\n".join(footer))


def steps_table(
    steps: Sequence[Step], seconds: Sequence[float], reach: Reach | None, most: int
) -> Table:
    """A row for each step, the longest first, up to `most`."""
    taken = sorted(zip(steps, seconds, strict=True), key=lambda each: -each[1])[:most]
    whole = sum(seconds) or 1.0
    rows = []
    for step, each in taken:
        op, _runs, *numbers = _row(_kernel(step.op, [(step, each)], reach), whole, reach)
        rows.append((step.name, op, *numbers))
    op_column, _runs_column, *columns = _columns()
    return Table(
        columns=(Column("step", kind="name"), op_column, *columns),
        rows=tuple(rows),
        footer=f"the {most} longest of {len(steps)}" if len(steps) > most else "",
    )


def _columns() -> tuple[Column, ...]:
    numbers = ("runs", "time", "share", "GFLOP/s", "GB/s", "of roof")
    return (Column("operator", kind="name"),
            *(Column(title, align="right", kind="number") for title in numbers))  # fmt: skip


def _row(kernel: Kernel, whole: float, reach: Reach | None) -> tuple[str, ...]:
    seconds = kernel.seconds or float("inf")
    return (
        kernel.op,
        str(kernel.runs),
        format_seconds(kernel.seconds),
        f"{100 * kernel.seconds / whole:.1f} %",
        f"{kernel.flops / seconds / 1e9:.1f}",
        f"{kernel.moved / seconds / 1e9:.1f}",
        "-" if reach is None else f"{100 * kernel.roof:.0f} %",
    )

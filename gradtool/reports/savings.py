"""Savings by smaller residuals, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypedDict

from gradtool.text.json_schema import Count
from gradtool.text.layout import Column
from gradtool.text.table import Table
from gradtool.text.units import format_bytes
from gradtool.workloads.savings import Saving, Step

TITLES = {"plain": "before", "masks": "masks", "hoisting": "hoisting"}


class SavingRecord(TypedDict):
    """A training graph with nothing done to it, with masks, or with hoisting as well."""

    step: Step
    crossing_bytes: Annotated[Count, "The residuals of backward."]
    unsized: Annotated[Count, "Values of unknown size that cross as well."]
    total_bytes: Annotated[Count | None, "The planned peak; null where sizes are open."]
    moved: Annotated[dict[str, Count], "Nodes that forward computes for backward, by operator."]
    asked: Annotated[Count, "Sizes that backward reads off values that it keeps anyway."]


def table(rows: Sequence[Saving]) -> Table:
    """A row per step, each on top of the one before; peaks are those of keeping everything."""
    return Table(
        columns=(
            Column("saved for backward"),
            *Column.numbers("bytes", "peak"),
            Column("moved to forward"),
        ),
        rows=tuple(_cells(row) for row in rows),
        footer=_footer(rows),
    )


def moved(rows: Sequence[Saving]) -> bool:
    """Whether anything was saved, or moved to forward."""
    first, *others = rows
    return any(row.moved or row.asked or row.residuals != first.residuals for row in others)


def rows_json(rows: Sequence[Saving]) -> list[SavingRecord]:
    """The rows for machines; sizes in bytes."""
    return [
        {
            "step": row.step,
            "crossing_bytes": int(row.residuals),
            "unsized": int(row.unsized),
            "total_bytes": None if row.peak is None else int(row.peak),
            "moved": dict(row.moved),
            "asked": int(row.asked),
        }
        for row in rows
    ]


def _cells(row: Saving) -> tuple[str, ...]:
    moved = ", ".join(f"{op} ({count})" for op, count in row.moved)
    if row.asked:
        moved += f"{', ' if moved else ''}{row.asked} sizes read elsewhere"
    peak = "unknown" if row.peak is None else format_bytes(row.peak)
    return TITLES[row.step], format_bytes(row.residuals), peak, moved


def _footer(rows: Sequence[Saving]) -> str:
    unsized = rows[-1].unsized
    return f"{unsized} values of unknown size cross as well" if unsized else ""

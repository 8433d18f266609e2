"""What keeping less of forward for backward saves, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradtool.reports.table import Column, Table
from gradtool.reports.units import format_bytes

if TYPE_CHECKING:
    from gradtool.passes.savings import Saving

TITLES = {"plain": "as differentiated", "masks": "masks", "hoisting": "hoisting"}


def table(rows: Sequence[Saving]) -> Table:
    """A row per step, each on top of the one before; peaks are those of keeping everything."""
    return Table(
        columns=(
            Column("save less first"),
            Column("kept for backward", "right", "number"),
            Column("peak", "right", "number"),
            Column("moved to forward"),
        ),
        rows=tuple(_cells(row) for row in rows),
        footer=_footer(rows),
    )


def rows_json(rows: Sequence[Saving]) -> list[dict[str, Any]]:
    """The rows for machines; sizes in bytes."""
    return [
        {
            "step": row.step,
            "crossing_bytes": int(row.crossing),
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
    return TITLES[row.step], format_bytes(row.crossing), peak, moved


def _footer(rows: Sequence[Saving]) -> str:
    unsized = rows[-1].unsized
    return f"{unsized} values of unknown size cross as well" if unsized else ""

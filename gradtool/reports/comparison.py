"""The comparison of two planned steps, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

from gradtool.comparison import Part
from gradtool.comparison.metrics import METRICS
from gradtool.reports.memory import left_out
from gradtool.text.json_schema import Count
from gradtool.text.layout import Column
from gradtool.text.table import Table
from gradtool.text.units import format_bytes, format_count, format_percent
from gradtool.text.words import count
from gradtool.workloads.names import KERNELS

if TYPE_CHECKING:
    from gradtool.comparison import Comparison, Moved

COUNTED = ("node",)  # parts that are numbers of runs, not bytes


class MovedRecord(TypedDict):
    """A number before and now."""

    name: str
    before: Annotated[Count | None, "Null where this side has no such thing."]
    now: Annotated[Count | None, "Null where this side has no such thing."]
    moved: Annotated[int, "The growth."]
    why: NotRequired[Annotated[str, "Of a tensor: its difference."]]


class ComparisonRecord(TypedDict):
    """Two sides: bytes, but for the metrics and parts that count things."""

    before: str
    now: str
    totals: Annotated[
        list[MovedRecord], "Metrics of the whole step that both sides have, as in gradtool check."
    ]
    parts: Annotated[
        dict[Part, list[MovedRecord]],
        "The common parts and their differences, the largest first: bytes at the peak step, of a "
        "node the number of its recomputations.",
    ]
    renamed_tensors: Count
    unknown: Annotated[list[str], "The parts not compared, and why."]


class CompareDocument(TypedDict):
    """Movements between models, plans or reports."""

    comparisons: list[ComparisonRecord]


def totals_table(found: Comparison) -> Table:
    """Every total of both sides, moved or not."""
    return Table(
        columns=(Column("whole step"), *Column.numbers("before", "now", "moved", "share")),
        rows=tuple(
            (
                row.name,
                *_amounts(row, counted=METRICS[row.name].unit != "bytes"),
                format_percent(row.delta / row.before, signed=True)
                if row.delta and row.before
                else "",
            )
            for row in found.totals
        ),
        title=f"{found.before.name} → {found.now.name}",
    )


def part_table(found: Comparison, part: Part, top: int) -> Table:
    """The `top` largest movements of a part; tensors with their differences."""
    rows = found.parts[part]
    rest = rows[top:]
    hidden = f"and {len(rest)} more: {_moved(sum(r.delta for r in rest), part)}" if rest else ""
    renamed = count(found.renamed, "tensor") if part == "tensor" and found.renamed else ""
    lines = [hidden, f"{renamed} only renamed" if renamed else ""]
    is_tensor = part == "tensor"
    return Table(
        columns=(
            Column(_TITLES.get(part, part), kind="name"),
            *Column.numbers("before", "now", "moved"),
            *([Column("why")] if is_tensor else []),
        ),
        rows=tuple(
            (row.name, *_amounts(row, counted=part in COUNTED), *([row.why] if is_tensor else []))
            for row in rows[:top]
        ),
        footer="\n".join(line for line in lines if line),
    )


def tables(found: Comparison, top: int) -> Iterator[Table]:
    """The whole step, then each part with a difference."""
    yield totals_table(found)
    for part, rows in found.parts.items():
        if rows:
            yield part_table(found, part, top)


def closing_lines(found: Comparison) -> list[str]:
    """Below the tables: the unchanged parts, the unknown ones, and the scope of the counts."""
    still = [_TITLES.get(part, part) for part, rows in found.parts.items() if not rows]
    lines = [f"nothing moved by {', '.join(still)}"] if still else []
    lines += [f"not compared: {line}" for line in found.unknown]
    sides = found.before, found.now
    before, now = (KERNELS[side.kernels] for side in sides)
    lines += [f"before is planned for {before}, now for {now}"] * (before != now)
    counted = all("state" in side.parts.get("region", ()) for side in sides)
    return [*lines, left_out({side.kernels for side in sides}, updating=counted)]


def comparison_json(found: Comparison) -> ComparisonRecord:
    """The differences, for machines."""
    return {
        "before": found.before.name,
        "now": found.now.name,
        "totals": _rows_json(found.totals),
        "parts": {part: _rows_json(rows) for part, rows in found.parts.items()},
        "renamed_tensors": found.renamed,
        "unknown": list(found.unknown),
    }


_TITLES: Mapping[Part, str] = {"region": "region at peak", "operator": "operator at peak",
           "tensor": "tensor at peak", "node": "node that runs again"}  # fmt: skip


def _rows_json(rows: Sequence[Moved]) -> list[MovedRecord]:
    return [_row_json(row) for row in rows]


def _row_json(row: Moved) -> MovedRecord:
    found: MovedRecord = {
        "name": row.name, "before": row.before, "now": row.now, "moved": row.delta,
    }  # fmt: skip
    return {**found, "why": row.why} if row.why else found


def _amounts(row: Moved, *, counted: bool) -> tuple[str, str, str]:
    shown = format_count if counted else format_bytes
    before, now = ("" if size is None else shown(size) for size in (row.before, row.now))
    return before, now, _signed(row.delta, counted=counted)


def _moved(delta: int, part: str) -> str:
    return _signed(delta, counted=part in COUNTED) or "nothing in sum"


def _signed(delta: int, *, counted: bool) -> str:
    """A difference with its sign; empty where there is none."""
    if not delta:
        return ""
    text = format_count(delta) if counted else format_bytes(delta)
    return f"+{text}" if delta > 0 else text

"""The largest batch within a memory, plan by plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypedDict

from gradtool.reports.plans import TITLES
from gradtool.text.json_schema import Count
from gradtool.text.layout import Column
from gradtool.text.table import Table
from gradtool.text.units import format_bytes
from gradtool.workloads.records import PlannedFor

NOTE = (
    "each batch is planned anew; recompute optimal computes no more again than one forward pass, "
    "and its batch may be up to 4 % too small"
)


class BatchesDocument(TypedDict):
    """The largest batch within a memory."""

    model: str
    memory_bytes: Count
    kernels: PlannedFor
    optimizer: str
    max_batch: Annotated[dict[str, Count], "By plan; 0 where not even one fits."]


def batches_table(found: Mapping[str, int], memory: int) -> Table:
    """A row a plan, with how many times the batch of keeping everything its batch is."""
    kept = found.get("keep", 0)
    return Table(
        columns=(
            Column("plan", kind="name"),
            Column(f"max batch @ {format_bytes(memory)}", "right", "number"),
            Column("× baseline", "right", "number"),
        ),
        rows=tuple(
            (
                TITLES.get(name, name),
                str(batch) if batch else "none",
                f"{batch / kept:.2f}" if kept else "",
            )
            for name, batch in found.items()
        ),
        footer=NOTE,
    )

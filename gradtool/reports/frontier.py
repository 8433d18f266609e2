"""The frontier of memory and work: the cost of each budget, as a table, a plot and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, TypedDict

from gradtool.reports.plans import TITLES
from gradtool.text.json_schema import Count
from gradtool.text.layout import Column
from gradtool.text.table import Table
from gradtool.text.units import format_bytes
from gradtool.workloads.proofs import ProofRecord, percent, points, proof_json
from gradtool.workloads.records import Dims, PlannedFor

if TYPE_CHECKING:
    from gradtool.planning.plan import Plan
    from gradtool.planning.search.proof import Proof
    from gradtool.workloads.planned import Planned


WIDTH = 50  # cells of the longest bar
PROVEN, OPEN = "#", "+"
NOTE = (
    "each batch is planned anew; recompute optimal computes no more again than one forward pass, "
    "and its batch may be up to 4 % too small"
)


class PointRecord(ProofRecord):
    """A plan within a budget, and the bytes of its arena."""

    peak_bytes: Count


class FrontierDocument(TypedDict):
    """The least work of each budget; peaks and budgets are of the arena, state aside."""

    model: str
    kernels: PlannedFor
    dims: Dims
    keep_bytes: Annotated[Count, "The peak of keeping everything."]
    optimizer_bytes: Annotated[Count, "State of the optimizer, beside the peaks and budgets."]
    points: Annotated[list[PointRecord], "Budgets rise."]


def frontier_table(
    found: Sequence[Planned], kept: Plan, state: int = 0, *, verbose: bool = False
) -> Table:
    """A row a budget; `state` are bytes of optimizer state, part of budgets and peaks.

    With `verbose`, how each plan was found.
    """
    pairs = _pairs(found)
    footer = "every plan was packed: its peak is that of the arena"
    if state:
        footer += f"; optimizer state of {format_bytes(state)} is included"
    if len({plan.peak for plan, _ in pairs}) == 1 and not any(proof.extra for _, proof in pairs):
        pairs = pairs[:1]
        plan = pairs[0][0]
        less = "" if plan.peak < kept.peak else ", which keeping everything takes"
        footer += (
            f"\nnothing to trade: no plan was found below {format_bytes(plan.peak + state)}{less}"
        )
    if any(proof.cut_short for _, proof in pairs):
        footer += "\ncut short: the search had further to go; more time may find better plans"
    return Table(
        columns=(
            *Column.numbers("budget", "× baseline", "peak", "extra", "bound", "gap"),
            *((Column("found by"),) if verbose else ()),
        ),
        rows=tuple(
            (
                format_bytes(proof.budget + state),
                f"{(proof.budget + state) / (kept.peak + state):.3f}",
                format_bytes(plan.peak + state),
                percent(proof, proof.extra),
                percent(proof, proof.bound),
                points(proof),
                *((proof.how,) if verbose else ()),
            )
            for plan, proof in pairs
        ),
        footer=footer,
    )


def plot(found: Sequence[Planned], state: int = 0) -> list[str]:
    """A bar for the extra work of each budget: `#` is proven necessary, `+` is the gap."""
    pairs = _pairs(found)
    most = max((proof.share(proof.extra) for _, proof in pairs), default=0.0)
    if not most:
        return []
    labels = [format_bytes(proof.budget + state) for _, proof in pairs]
    width = max(map(len, labels))
    bars = [_bar(proof, most) for _, proof in pairs]
    head = f" extra work by budget ({PROVEN} proven necessary, {OPEN} gap)"
    return [
        "",
        head,
        *(
            f" {label:>{width}} |{bar} {percent(proof, proof.extra)}"
            for label, bar, (_, proof) in zip(labels, bars, pairs, strict=True)
        ),
    ]


def frontier_json(
    found: Sequence[Planned], kept: Plan, model: str, dims: Mapping[str, int], state: int = 0
) -> FrontierDocument:
    """The frontier for machines."""
    return {
        "model": model,
        "kernels": kept.program.kernels,
        "dims": {name: int(dims[name]) for name in sorted(dims)},
        "keep_bytes": int(kept.peak),
        "optimizer_bytes": state,
        "points": [{"peak_bytes": plan.peak, **proof_json(proof)} for plan, proof in _pairs(found)],
    }


def _pairs(found: Sequence[Planned]) -> list[tuple[Plan, Proof]]:
    return [(each.plan, each.proof) for each in found if each.proof is not None]


def _bar(proof: Proof, most: float) -> str:
    """A bar of cells: proven work, then the gap."""
    cells = round(WIDTH * proof.share(proof.extra) / most)
    proven = int(WIDTH * proof.share(proof.bound) / most)
    return PROVEN * min(proven, cells) + OPEN * max(cells - proven, 0)


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
            *Column.numbers(f"max batch @ {format_bytes(memory)}", "× baseline"),
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

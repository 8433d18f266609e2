"""The plans of a model side by side: their peaks, their savings, their recomputed work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

from gradtool.planning.breakdown import activation_bytes, held
from gradtool.reports.memory import footer, summary, timeline
from gradtool.text.json_schema import Count
from gradtool.text.layout import Column
from gradtool.text.table import Table
from gradtool.text.units import format_bytes, format_percent
from gradtool.workloads.formulas import LARGE
from gradtool.workloads.names import LIGHT, REORDER
from gradtool.workloads.proofs import ProofRecord, proof_json
from gradtool.workloads.records import Dims, PlannedFor

if TYPE_CHECKING:
    from gradtool.planning.plan import Plan
    from gradtool.planning.search.proof import Proof
    from gradtool.workloads.formulas import Formula
    from gradtool.workloads.planned import Planned


TITLES = {
    "keep": "keep everything",
    "reorder": "reorder only",
    "mirror": "mirror",
    "sqrt": "recompute sqrt",
    "segments": "recompute segments",
    "checkpoints": "given checkpoints",
    "min-cut": "recompute min-cut",
    "optimal": "recompute optimal",
    LIGHT: "optimal within 5 % work",
}
WIDTH = 78  # columns of the two timelines together
_POWERS = {1: "", 2: "²", 3: "³"}


class PlanRecord(TypedDict):
    """A plan beside keeping everything."""

    plan: str
    peak_bytes: Count
    load_bytes: Count
    total_bytes: Count
    activation_bytes: Count
    saved_percent: float
    extra_flops: int | None
    extra_flops_percent: float | None
    max_batch: int | None
    steps: Count
    peak_step: Count
    lower_bound_bytes: Count
    proof: ProofRecord | None
    parts: NotRequired[Annotated[dict[str, Count], "With --by: bytes at the peak step."]]


class PlansDocument(TypedDict):
    """The plans of a model; sizes are bytes."""

    model: str
    kernels: PlannedFor
    dims: Dims
    notes: list[str]
    plans: list[PlanRecord]
    written: NotRequired[
        Annotated[str | dict[str, Count], "The file written; of report, bytes by file."]
    ]
    bytes: NotRequired[Count]


class ModelsDocument(TypedDict):
    """The plans of several models."""

    models: list[PlansDocument]


@dataclass(frozen=True)
class Row:
    """A plan in the table.  `flops` are those of the whole step, `extra` those recomputed.

    `extra` is None where an operator of unknown cost runs again; `max_batch` None where nobody
    asked, 0 where not even a batch of 1 fits.
    """

    model: str
    planned: Planned
    flops: int
    extra: int | None
    max_batch: int | None = None

    @property
    def plan(self) -> Plan:
        """The plan, made on first access."""
        return self.planned.plan

    @property
    def name(self) -> str:
        """The name of the plan."""
        return self.planned.name

    @property
    def peak(self) -> int:
        """The bytes of its arena."""
        return self.planned.peak

    @property
    def proof(self) -> Proof | None:
        """The bound and gap of a plan within a budget."""
        return self.planned.proof

    @property
    def title(self) -> str:
        """The plan's title."""
        return TITLES.get(self.name, self.name)

    def saved(self, kept: Row) -> float:
        """The saved share of the peak of `kept`, the row without recompute."""
        return 1 - self.peak / kept.peak if kept.peak else 0.0

    @property
    def extra_share(self) -> float | None:
        """The recomputed work, as a share of the step."""
        if self.extra is None:
            return None
        return self.extra / self.flops if self.flops else 0.0


def plans_table(models: Sequence[Sequence[Row]], memory: int | None = None) -> Table:
    """The rows of one model, or of several with a column for the model.

    The first row of a model is the plan without recompute.
    """
    several = len(models) > 1
    columns = [Column("model", kind="name")] if several else []
    columns += [Column("plan"), *Column.numbers("peak", "saved", "extra FLOPs")]
    if memory is not None:
        columns += Column.numbers(f"max batch @ {format_bytes(memory)}")
    rows = []
    for model in models:
        for number, row in enumerate(model):
            cells = [] if number == 0 else [
                format_percent(row.saved(model[0])),
                _extra(row),
            ]  # fmt: skip
            found = [row.title, format_bytes(row.peak), *(cells or ["", ""])]
            found = [row.model if number == 0 else "", *found] if several else found
            rows.append((*found, *([] if memory is None else [_batch(row.max_batch)])))
        if lower := min((row.proof.least for row in model if row.proof), default=0):
            rows.append(_lower_bound(lower, model[0], len(columns), several=several))
    return Table(columns=tuple(columns), rows=tuple(rows))


def folded(rows: Sequence[Row]) -> list[Row]:
    """The rows of a model as people read them: the first alone where no other differs from it."""
    kept, *others = rows
    return list(rows) if any(map(_differs(kept), others)) else [kept]


def nothing_saved(rows: Sequence[Row], assumed: Mapping[str, int]) -> str:
    """The reason for one row of a model, if `folded` leaves one of several; else nothing."""
    kept, *others = rows
    if not others or any(map(_differs(kept), others)):
        return ""
    names = ", ".join(row.title for row in others)
    least = min((row.proof.least for row in others if row.proof), default=0)
    proven = f", and no plan takes less than {format_bytes(least)}" if least else ""
    sizes = ", ".join(f"{name}={size}" for name, size in assumed.items())
    at = f" at {sizes}, which is assumed" if sizes else ""
    return f"nothing is saved{at}: {names} take no less than keeping everything{proven}"


def _differs(kept: Row) -> Callable[[Row], bool]:
    return lambda row: row.peak < kept.peak or row.max_batch is not None


def _lower_bound(least: int, kept: Row, columns: int, *, several: bool) -> tuple[str, ...]:
    """The row of the proven lower bound: no plan takes less."""
    saved = format_percent(1 - least / kept.peak if kept.peak else 0.0)
    cells = [*([""] if several else []), "lower bound", format_bytes(least), saved]
    return (*cells, *[""] * (columns - len(cells)))


def one_line(rows: Sequence[Row]) -> str:
    """The peaks of the last plan and the first."""
    kept, found = rows[0], rows[-1]
    saved = format_percent(found.saved(kept))
    peaks = f"{format_bytes(found.peak)} instead of {format_bytes(kept.peak)}"
    return f"{found.title}: peak {peaks}, {saved} saved"


def closing_lines(models: Sequence[Sequence[Row]], *, unicode: bool) -> list[str]:
    """Below the table: the courses of the first plan and of one that saves, and the peak of that.

    It is rather one that computes something again than one that only reorders.  Of several models
    there is neither.  The last line tells the scope of the counts.
    """
    unknown = [line for rows in models if (line := unknown_line(rows))]
    counted = footer([rows[0].plan for rows in models])
    if len(models) > 1:
        return [*dict.fromkeys(unknown), counted]
    (rows,) = models
    saving = [row for row in rows[1:] if row.peak < rows[0].peak]
    saving.sort(key=lambda row: row.name == REORDER)
    shown = [rows[0], *saving[:1]]
    peak, _, parts = summary(shown[-1].plan).partition(": ")
    width = (WIDTH - sum(len(row.name) + 3 for row in shown)) // len(shown)
    courses = [
        f"{row.name} {timeline(row.plan, width, unicode=unicode).splitlines()[0]}" for row in shown
    ]
    lines = ["", f"{shown[-1].title}: {peak}", f" {parts}", " " + "  ".join(courses)]
    return [*lines, *unknown, counted]


def unknown_line(rows: Sequence[Row]) -> str:
    """The operators of unknown cost, if there are any; extra FLOPs are without theirs."""
    counts: dict[str, int] = {}
    for step in rows[0].plan.program.steps:
        if step.flops is None:
            counts[step.op] = counts.get(step.op, 0) + 1
    listed = ", ".join(f"{op} ({count})" for op, count in sorted(counts.items()))
    return f"cost unknown, not in the FLOPs: {listed}" if listed else ""


def plans_json(
    rows: Sequence[Row], dims: Mapping[str, int], notes: Sequence[str] = (), *, by: str = "plan"
) -> PlansDocument:
    """The plans of a model for machines.

    `by` an operator, phase, module or tensor, each plan has the `parts` that it holds at its peak.
    """
    kept = rows[0]
    return {
        "model": kept.model,
        "kernels": kept.plan.program.kernels,
        "dims": {name: int(dims[name]) for name in sorted(dims)},
        "notes": list(notes),
        "plans": [
            each if by == "plan" else {**each, "parts": held(row.plan, by)}
            for row in rows
            for each in (_plan_json(row, kept),)
        ],
    }


def _plan_json(row: Row, kept: Row) -> PlanRecord:
    plan = row.plan
    share = row.extra_share
    return {
        "plan": plan.name,
        "peak_bytes": int(plan.peak),
        "load_bytes": int(plan.peak_live),
        "total_bytes": int(plan.total),
        "activation_bytes": activation_bytes(plan),
        "saved_percent": round(100 * row.saved(kept), 4),
        "extra_flops": row.extra,
        "extra_flops_percent": None if share is None else round(100 * share, 4),
        "max_batch": row.max_batch,
        "steps": len(plan.program.steps),
        "peak_step": int(plan.peak_step),
        "lower_bound_bytes": 0 if row.proof is None else row.proof.least,
        "proof": None if row.proof is None else proof_json(row.proof),
    }


def _extra(row: Row) -> str:
    share = row.extra_share
    return "unknown" if share is None else format_percent(share, signed=True)


def _batch(found: int | None) -> str:
    return "" if found is None else "none" if found == 0 else str(found)


def formula_text(formula: Formula) -> str:
    """The formula in one line; the sizes it takes for granted are in brackets."""
    line = ""
    for number, term in enumerate(formula.terms):
        size = format_bytes(abs(term.bytes))
        sign = "-" if term.bytes < 0 else "+"
        line += f" {sign} " if number else "-" if term.bytes < 0 else ""
        line += "·".join([size, *(f"{s}{_POWERS[p]}" for s, p in term.powers.items())])
    return (line or "0 B") + _workspace(formula) + _assumed(formula.fixed)


def _workspace(formula: Formula) -> str:
    if formula.workspace is None:
        return ""
    return f" + workspace ({format_bytes(formula.workspace)} at {LARGE})"


def no_formula(symbols: Sequence[str]) -> str:
    """The message for a peak without a formula."""
    return f"no formula: its peak is no polynomial of degree 2 in {', '.join(symbols)}"


def _assumed(fixed: Mapping[str, int]) -> str:
    said = ", ".join(f"{name}={size}" for name, size in fixed.items())
    return f" ({said} assumed)" if said else ""

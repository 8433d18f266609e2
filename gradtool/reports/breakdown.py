"""The bytes of the peak step by what made them: an operator, or a phase of the training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gradtool.planning.plan import ALWAYS_LIVE
from gradtool.reports.memory import FOOTER, GAPS, alive_at_peak, by_region
from gradtool.reports.table import Column, Table
from gradtool.reports.units import format_bytes, format_percent

if TYPE_CHECKING:
    from gradtool.planning.plan import Buffer, Plan
    from gradtool.program import Program, Step


def by_operator(plan: Plan) -> Table:
    """The operators whose results and workspaces are held at the peak, largest first."""
    return _by(plan, "operator", lambda step: step.op)


def by_phase(plan: Plan) -> Table:
    """What forward and backward have left at the peak, beside what is held throughout."""
    return _by(plan, "phase", lambda step: step.stage)


def by(plan: Plan, what: str, top: int) -> Table:
    """The table of `report --by`: `region`, `tensor`, `op` or `phase`."""
    if what == "tensor":
        return alive_at_peak(plan, top)
    tables = {"region": by_region, "op": by_operator, "phase": by_phase}
    return tables[what](plan)


def unsized(program: Program) -> dict[str, int]:
    """Results whose shape depends on data, counted by operator: they are in no plan."""
    found: dict[str, int] = {}
    for step in program.steps:
        count = sum(program.values[value].spec is None for value in step.writes)
        if count:
            found[step.op] = found.get(step.op, 0) + count
    return dict(sorted(found.items()))


def _by(plan: Plan, title: str, key: Callable[[Step], str]) -> Table:
    groups: dict[str, list[Buffer]] = {}
    for buffer in plan.live(plan.peak_step):
        always = buffer.region in ALWAYS_LIVE
        name = buffer.region if always else key(plan.program.steps[buffer.first])
        groups.setdefault(name, []).append(buffer)
    sizes = [(name, len(held), sum(b.bytes for b in held)) for name, held in groups.items()]
    sizes.sort(key=lambda group: (-group[2], group[0]))
    gaps = plan.peak - sum(size for *_, size in sizes)
    rows = [(name, str(count), size) for name, count, size in sizes]
    rows += [(GAPS, "", gaps)] if gaps else []
    share = max(plan.peak, 1)
    return Table(
        columns=(
            Column(title, kind="name"),
            Column("tensors", "right", "number"),
            Column("at peak", "right", "number"),
            Column("share", "right", "number"),
        ),
        rows=tuple(
            (name, count, format_bytes(size), format_percent(size / share))
            for name, count, size in [*rows, ("peak", "", plan.peak)]
        ),
        footer=FOOTER,
    )

"""The bytes of the peak step by what made them: an operator, or a phase of the training step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gradtool.planning.breakdown import FRAGMENTATION, held, module
from gradtool.planning.plan import ALWAYS_LIVE
from gradtool.reports.memory import alive_at_peak, by_region, footer
from gradtool.text.table import Column, Table
from gradtool.text.units import format_bytes, format_percent

if TYPE_CHECKING:
    from gradtool.planning.plan import Buffer, Plan
    from gradtool.program import Step


def by_operator(plan: Plan) -> Table:
    """The operators whose results and workspaces are held at the peak, largest first."""
    return _by(plan, "operator", lambda step: step.op)


def by_phase(plan: Plan) -> Table:
    """What forward and backward have left at the peak, beside what is held throughout."""
    return _by(plan, "phase", lambda step: step.stage)


def by_module(plan: Plan) -> Table:
    """The parts of the model whose steps left what is held at the peak."""
    return _by(plan, "module", module)


def by(plan: Plan, what: str, top: int) -> Table:
    """The table of `report --by`: `region`, `tensor`, `op`, `phase` or `module`."""
    if what == "tensor":
        return alive_at_peak(plan, top)
    tables = {"region": by_region, "op": by_operator, "phase": by_phase, "module": by_module}
    return tables[what](plan)


def side_by_side(plans: Sequence[Plan], what: str, top: int) -> Table:
    """What each plan holds at its own peak: by `op`, `phase`, `module` or `tensor`.

    The `top` rows that are largest in any plan; the rest is one row.
    """
    columns = [held(plan, what) for plan in plans]
    names = sorted(
        {name for parts in columns for name in parts},
        key=lambda name: (-max(parts.get(name, 0) for parts in columns), name),
    )
    rows = [(name, [parts.get(name, 0) for parts in columns]) for name in names[:top]]
    rest = [sum(parts.get(name, 0) for name in names[top:]) for parts in columns]
    if any(rest):
        rows.append((f"and {len(names) - top} more", rest))
    gaps = [plan.peak - sum(parts.values()) for plan, parts in zip(plans, columns, strict=True)]
    rows += [(FRAGMENTATION, gaps)] if any(gaps) else []
    rows.append(("peak", [plan.peak for plan in plans]))
    return Table(
        columns=(
            Column({"op": "operator"}.get(what, what), kind="name"),
            *(Column(plan.name, "right", "number") for plan in plans),
        ),
        rows=tuple((name, *map(format_bytes, sizes)) for name, sizes in rows),
        footer=footer(plans),
    )


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
    rows += [(FRAGMENTATION, "", gaps)] if gaps else []
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
        footer=footer([plan]),
    )

"""The bytes of the peak step by producer: an operator, or a phase of the training step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradtool.planning.breakdown import FRAGMENTATION, held, part
from gradtool.reports.memory import alive_at_peak, by_region, footer
from gradtool.text.layout import Column
from gradtool.text.table import Table
from gradtool.text.units import format_bytes, format_percent

if TYPE_CHECKING:
    from gradtool.planning.plan import Buffer, Plan


TITLES = {"op": "operator"}  # of columns; others bear their own names


def by(plan: Plan, what: str, top: int) -> Table:
    """The table of `report --by`: `region`, `tensor`, `op`, `phase` or `module`."""
    if what == "tensor":
        return alive_at_peak(plan, top)
    return by_region(plan) if what == "region" else by_part(plan, what, top)


def side_by_side(plans: Sequence[Plan], what: str, top: int) -> Table:
    """The bytes of each plan at its own peak: by `op`, `phase`, `module` or `tensor`.

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
            Column(TITLES.get(what, what), kind="name"),
            *Column.numbers(*(plan.name for plan in plans)),
        ),
        rows=tuple((name, *map(format_bytes, sizes)) for name, sizes in rows),
        footer=footer(plans),
    )


def by_part(plan: Plan, what: str, top: int | None = None) -> Table:
    """The operators, phases or modules whose results are held at the peak, largest first.

    Of very many modules the `top` largest, and the rest in one row.
    """
    groups: dict[str, list[Buffer]] = {}
    for buffer in plan.live(plan.peak_step):
        groups.setdefault(part(plan, buffer, what), []).append(buffer)
    sizes = [(name, len(held), sum(b.bytes for b in held)) for name, held in groups.items()]
    sizes.sort(key=lambda group: (-group[2], group[0]))
    if what == "module" and top is not None and len(sizes) > top:
        rest = sizes[top:]
        more = (f"and {len(rest)} more", sum(n for _, n, _ in rest), sum(s for *_, s in rest))
        sizes = [*sizes[:top], more]
    gaps = plan.peak - sum(size for *_, size in sizes)
    rows = [(name, str(count), size) for name, count, size in sizes]
    rows += [(FRAGMENTATION, "", gaps)] if gaps else []
    share = max(plan.peak, 1)
    return Table(
        columns=(
            Column(TITLES.get(what, what), kind="name"),
            *Column.numbers("tensors", "at peak", "share"),
        ),
        rows=tuple(
            (name, count, format_bytes(size), format_percent(size / share))
            for name, count, size in [*rows, ("peak", "", plan.peak)]
        ),
        footer=footer([plan]),
    )

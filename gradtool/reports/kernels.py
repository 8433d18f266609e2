"""What runs each step of a program, and why."""

from __future__ import annotations

from typing import Any

from gradtool.program import Program
from gradtool.program.native import Choice, choices
from gradtool.text.table import Column, Table

SCHEMA_VERSION = 1
COLUMNS = ("node", "operator", "kernel", "layout", "why")


def kernels_table(program: Program) -> Table:
    """A row for each step, in running order."""
    return Table(
        columns=(
            Column("node", kind="name"),
            Column("operator", kind="name"),
            *(Column(title) for title in COLUMNS[2:]),
        ),
        rows=tuple(_row(choice) for choice in choices(program)),
        footer=_footer(program),
    )


def kernels_json(program: Program) -> list[dict[str, Any]]:
    """The same for machines."""
    return [dict(zip(COLUMNS, _row(choice), strict=True)) for choice in choices(program)]


def _row(choice: Choice) -> tuple[str, ...]:
    method = f" {choice.method}" if choice.method else ""
    kernel = f"{choice.provider}{method}"
    return choice.step.name, choice.step.op, kernel, choice.layout, choice.why


def _footer(program: Program) -> str:
    native = sum(step.is_native for step in program.steps)
    return f"{native} of {len(program.steps)} steps on native kernels"

"""What runs each step of a program, and why."""

from __future__ import annotations

from typing import Any

from gradtool.program import Program
from gradtool.program.native import Choice, choices
from gradtool.text.layout import Column
from gradtool.text.table import Table

SCHEMA_VERSION = 1


def kernels_table(program: Program) -> Table:
    """A row for each step, in running order."""
    return Table(
        columns=(
            Column("node", kind="name"),
            Column("operator", kind="name"),
            *(Column(title) for title in ("kernel", "layout", "why")),
        ),
        rows=tuple(_row(choice) for choice in choices(program)),
        footer=_footer(program),
    )


def kernels_json(program: Program) -> dict[str, Any]:
    """The same for machines."""
    steps = [
        {
            "node": choice.step.name,
            "nodes": list(choice.step.names),
            "operator": choice.step.op,
            "provider": choice.provider,
            "method": choice.method,
            "layout": choice.layout,
            "why": choice.why,
        }
        for choice in choices(program)
    ]
    return {"schema_version": SCHEMA_VERSION, "steps": steps}


def _row(choice: Choice) -> tuple[str, ...]:
    kernel = f"{choice.provider} {choice.method}".rstrip()
    return choice.step.name, choice.step.op, kernel, choice.layout, choice.why


def _footer(program: Program) -> str:
    native = sum(step.is_native for step in program.steps)
    return f"{native} of {len(program.steps)} steps on native kernels"

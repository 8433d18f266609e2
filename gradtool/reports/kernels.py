"""The kernel of each step of a program, and the reason."""

from __future__ import annotations

from typing import Annotated, TypedDict

from gradtool.program import Program
from gradtool.program.native import Choice, Provider, choices
from gradtool.text.layout import Column
from gradtool.text.table import Table


class StepRecord(TypedDict):
    """The kernel of a step."""

    node: Annotated[str, "Empty where a node has no name."]
    nodes: Annotated[
        list[str], "The nodes that run as this step, in order; the last gives it its name."
    ]
    operator: str
    provider: Provider
    method: Annotated[str, "How a native kernel computes, where there are several ways."]
    layout: Annotated[str, "How the images of the step lie; empty where it has none."]
    why: str


class KernelsDocument(TypedDict):
    """The kernels of a program, step by step."""

    steps: Annotated[list[StepRecord], "In running order."]


def kernels_table(program: Program) -> Table:
    """A row for each step, in running order."""
    return Table(
        columns=(
            *Column.names("node", "operator"),
            *(Column(title) for title in ("kernel", "layout", "why")),
        ),
        rows=tuple(_row(choice) for choice in choices(program)),
        footer=_footer(program),
    )


def kernels_json(program: Program) -> KernelsDocument:
    """The same for machines."""
    steps: list[StepRecord] = [
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
    return {"steps": steps}


def _row(choice: Choice) -> tuple[str, ...]:
    kernel = f"{choice.provider} {choice.method}".rstrip()
    return choice.step.name, choice.step.op, kernel, choice.layout, choice.why


def _footer(program: Program) -> str:
    native = sum(step.is_native for step in program.steps)
    return f"{native} of {len(program.steps)} steps on native kernels"

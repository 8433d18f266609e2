"""Declarations of kernels and the cost model for a step's written outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradtool.graph.families import split_name
from gradtool.graph.specs import Spec
from gradtool.operators.block_size import grain
from gradtool.ops import costs
from gradtool.ops import kernels as registry
from gradtool.program import Program, Step, Value


def narrowed(program: Program, before: Sequence[Step]) -> Program:
    """A program whose steps declare their needs for the remaining outputs.

    `before` are steps by name that write all their outputs; a step that recomputes one names it as
    its source.
    """
    whole = {step.name: step for step in before}
    steps = []
    for step in program.steps:
        full = whole.get(step.name) or whole[step.source]
        written = zip(step.outputs, full.outputs, strict=True)
        fewer = any(now is None and before is not None for now, before in written)
        steps.append(redeclared(program, step) if fewer else step)
    return dataclasses.replace(program, steps=tuple(steps))


def redeclared(program: Program, step: Step) -> Step:
    """A step with the workspace and FLOPs for its written outputs."""
    domain, op = split_name(step.op)
    found = registry.find(domain, op, step.version)
    if found is None or program.is_dynamic(step):
        return step
    inputs = [
        operand(program.values, program.constants, v, on_host=slot in found.host)
        for slot, v in enumerate(step.inputs)
    ]
    out: list[Spec | None] = [None if v is None else program.values[v].spec for v in step.outputs]
    with grain(program.grain):
        workspace = found.workspace(inputs, out, step.attributes)
    return dataclasses.replace(
        step,
        workspace=workspace,
        flops=costs.flops(domain, op, step.version, inputs, out, step.attributes),
    )


def operand(
    values: Sequence[Value],
    constants: Mapping[int, np.ndarray[Any, Any]],
    value: int | None,
    *,
    on_host: bool,
) -> Any:
    """The operand of declarations for an input: its spec, or a constant wanted on the host."""
    if value is None:
        return None
    if on_host and value in constants:
        return constants[value]
    return values[value].spec

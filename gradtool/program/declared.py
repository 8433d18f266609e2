"""Declarations of kernels and the cost model for a step's written outputs, once for like ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtool.graph.families import full_name, split_name
from gradtool.graph.specs import Spec
from gradtool.operators.block_size import grain
from gradtool.ops import costs
from gradtool.ops import kernels as registry
from gradtool.ops.kernels import Kernel
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


@dataclass(frozen=True, slots=True)
class Declaration:
    """Workspace and costs of a step, in the fields of `Step`."""

    workspace: tuple[Spec, ...]
    scratch_bytes: int
    flops: int | None
    moved: int


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a kernel: operands, results, attributes.

    `operands` are specs, known arrays where the kernel wants them on the host, None where absent
    or where the shape depends on data; `wanted` are the results that are read, `results` all that
    there are. A call is `dynamic` if the shape of something that it reads or writes depends on
    data.
    """

    kernel: Kernel
    version: int
    operands: Sequence[Any]
    wanted: Sequence[Spec | None]
    results: Sequence[Spec | None]
    attributes: Mapping[str, Any]
    dynamic: bool

    def declared(self, *, priced: bool) -> Declaration:
        """The declaration by the kernel and, if `priced`, the cost model."""
        found, flops, moved = self.kernel, None, 0
        if priced:
            name, operator = full_name(found.domain, found.op), (found.domain, found.op)
            moved = costs.moved(self.operands, self.wanted, op=name, attributes=self.attributes)
            if not self.dynamic:
                flops = costs.flops(
                    *operator, self.version, self.operands, self.wanted, self.attributes
                )
        if self.dynamic:
            return Declaration((), 0, None, moved)
        return Declaration(
            workspace=found.workspace(self.operands, self.wanted, self.attributes),
            scratch_bytes=found.scratch_bytes(self.operands, self.results, self.attributes),
            flops=flops,
            moved=moved,
        )


class Declarations:
    """The declarations of calls by all their dependences: the layers of a model repeat.

    Specs and arrays are told apart by identity: callers hold on to them, and have one object for
    all equal specs.
    """

    def __init__(self, *, priced: bool = True) -> None:
        self.priced = priced
        self._known: dict[Hashable, Declaration] = {}

    def of(self, call: Call) -> Declaration:
        """The declaration of a call, cached for like ones."""
        attributes = tuple(call.attributes.items())
        sizes = (call.operands, call.wanted, call.results)
        key = (
            id(call.kernel),
            call.version,
            call.dynamic,
            attributes,
            *(tuple(map(id, s)) for s in sizes),
        )
        try:
            found = self._known.get(key)
        except TypeError:  # an attribute is an array or has a list in it: compared by nothing
            return call.declared(priced=self.priced)
        if found is None:
            found = self._known[key] = call.declared(priced=self.priced)
        return found

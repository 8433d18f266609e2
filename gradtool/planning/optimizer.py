"""Bytes of optimizer state: they stay through every step, beside the arena."""

from __future__ import annotations

from gradtool.graph.optimizers import OPTIMIZERS
from gradtool.graph.specs import Spec
from gradtool.passes.update_kinds import kind_of
from gradtool.passes.update_rules import Extent
from gradtool.program import Program


def state_bytes(program: Program, optimizer: str) -> int:
    """State of one of `OPTIMIZERS` at its defaults, in bytes, for the trained values of a program.

    Trained are the parameters with a gradient, or without any, the inputs with one.
    """
    if optimizer == OPTIMIZERS[0]:
        return 0
    kind, setting = kind_of(optimizer)
    tables = {step.inputs[0] for step in program.steps if step.op == "Gather"}
    found: dict[str, int] = {"parameter": 0, "input": 0}
    for number, value in enumerate(program.values):
        if value.name in program.gradients and value.kind in found and value.spec is not None:
            spec = value.spec
            matrix = len(spec.shape) == 2 and number not in tables
            kept = kind.state(setting, Extent(spec.shape, matrix)).values()
            found[value.kind] += sum(program.aligned(Spec(s, spec.dtype).bytes) for s in kept)
    return found["parameter"] or found["input"]

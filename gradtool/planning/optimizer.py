"""Bytes of optimizer state: they stay through every step, beside the arena."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gradtool.graph.optimizers import OPTIMIZERS as NAMES
from gradtool.passes.optimizer import OPTIMIZERS
from gradtool.program import Program

# Tensors of a parameter's size and type that an optimizer keeps from step to step.
STATES: Mapping[str, int] = MappingProxyType(
    {name: len(OPTIMIZERS[name].state) if name in OPTIMIZERS else 0 for name in NAMES}
)


def state_bytes(program: Program, optimizer: str) -> int:
    """What an optimizer of `STATES` keeps for the trained values of a program.

    Those are the parameters with a gradient, or where no parameter has one, the inputs that do.
    """
    kinds: dict[str, int] = {"parameter": 0, "input": 0}
    for value in program.values:
        if value.name in program.gradients and value.kind in kinds:
            kinds[value.kind] += program.aligned(value.bytes)
    return STATES[optimizer] * (kinds["parameter"] or kinds["input"])

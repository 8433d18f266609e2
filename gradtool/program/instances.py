"""Recomputed values of a program as instances of one value."""

from __future__ import annotations

from gradtool.program import Program


def first_instances(program: Program) -> dict[int, int]:
    """By recomputed value, its original."""
    made = {step.name: step for step in program.steps if step.name}
    pairs = (
        pair
        for step in program.steps
        if step.stage == "recompute" and step.source in made
        for pair in zip(step.outputs, made[step.source].outputs, strict=False)
    )
    return {again: once for again, once in pairs if again is not None and once is not None}

"""Which values of a program are instances of one value, of which plans compute some again."""

from __future__ import annotations

from gradtool.program import Program


def first_instances(program: Program) -> dict[int, int]:
    """By value that a plan computes again, the value that it is again."""
    made = {step.name: step for step in program.steps if step.name}
    pairs = (
        pair
        for step in program.steps
        if step.stage == "recompute" and step.source in made
        for pair in zip(step.outputs, made[step.source].outputs, strict=False)
    )
    return {again: once for again, once in pairs if again is not None and once is not None}

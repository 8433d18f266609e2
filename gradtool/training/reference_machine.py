"""The time of a step on a nominal machine: what alternatives are compared by, the same everywhere.

Source: the roofline model (Williams, Waterman, Patterson 2009): a step takes as long as its
operations or its bytes do, whichever is longer.  Unlike there, each call costs some time as well.
"""

from __future__ import annotations

from gradtool.program import Program, Step

OPERATIONS = 50e9  # a second
BYTES = 10e9  # a second
CALL = 20e-6  # seconds


def seconds(program: Program) -> float:
    """Nominal seconds of a program; a step of unknown cost counts its bytes."""
    return sum(map(step_seconds, program.steps))


def step_seconds(step: Step) -> float:
    """Nominal seconds of a step of a program."""
    return CALL + max((step.flops or 0) / OPERATIONS, (step.moved or 0) / BYTES)

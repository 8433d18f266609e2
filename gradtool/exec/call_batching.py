"""The bound steps of a program, as a step calls them: one call of C for many native kernels.

Between those no Python runs: tiny networks would spend most of their time on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gradtool.native.call import Call
from gradtool.ops.native import parts_of
from gradtool.program import Program, Step

MOST = 2**30
"""Operations and bytes of one call: within tens of milliseconds Python looks at signals again."""

Bound = Callable[[], object]


class Link(NamedTuple):
    """A bound call, and the number of its step, or of the first of several."""

    call: Bound
    step: int


def linked(calls: Sequence[Bound], program: Program) -> list[Link]:
    """The calls in order; adjacent ones of the library as one, up to `MOST`.

    Beside those of steps there may be more calls.
    """
    steps = program.steps
    found: list[Link] = []
    waiting: list[Call] = []
    first, cost, signatures = 0, 0, program.signatures

    def close() -> None:
        if waiting:
            found.append(Link(Call.joined(waiting).run, first))
            waiting.clear()

    for index, bound in enumerate(calls):
        own = 0
        if index < len(steps):
            signature = signatures[index]
            own = signature.cost = signature.cost or _cost(program, steps[index])
        if cost + own > MOST:
            close()
        for part in (bound,) if isinstance(bound, Call) else parts_of([bound]):
            if not isinstance(part, Call):
                close()
                found.append(Link(part, index))
                continue
            if not waiting:
                first, cost = index, 0
            waiting.append(part)
        cost += own
    close()
    return found


def _cost(program: Program, step: Step) -> int:
    """The bytes of a step, or its operations if it were a product of its three largest operands."""
    specs = (program.values[v].spec for v in (*step.reads, *step.writes))
    sizes = sorted([0, 0, *(spec.bytes for spec in specs if spec is not None)])
    return max(sum(sizes), math.isqrt(math.prod(sizes[-3:])) // 4)

"""The bound steps of a program, as a step calls them: one call of C for many native kernels.

Between those no Python runs: tiny networks would spend most of their time on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gradtool.native.call import Call
from gradtool.ops.native import parts_of
from gradtool.program import Step

MOST = 2**30
"""Operations and bytes of one call: within tens of milliseconds Python looks at signals again."""

Bound = Callable[[], object]


class Link(NamedTuple):
    """A bound call, and the number of its step, or of the first of several."""

    call: Bound
    step: int


def linked(calls: Sequence[Bound], steps: Sequence[Step]) -> list[Link]:
    """The calls in order; adjacent ones of the library as one, up to `MOST`.

    Beside those of `steps` there may be more calls.
    """
    found: list[Link] = []
    waiting: list[Call] = []
    first, cost = 0, 0

    def close() -> None:
        if waiting:
            found.append(Link(Call.joined(waiting).run, first))
            waiting.clear()

    for index, bound in enumerate(calls):
        own = (steps[index].flops or 0) + steps[index].moved if index < len(steps) else 0
        if cost + own > MOST:
            close()
        for part in parts_of([bound]):
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

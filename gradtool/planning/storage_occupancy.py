"""The occupants of one storage, one after the other, where operators write in place.

A storage is called by the value that lies in it when the most is alive: that is the one that people
look for.  Where the storage is free then, it is called by the value that lies in it longest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from gradtool.planning.plan import TEMPORARIES, Region
from gradtool.program import Kind, Program

REGIONS: Mapping[Kind, Region] = {
    "parameter": "parameters",
    "state": "state",
    "constant": "constants",
    "input": "inputs",
    "activation": "activations",
    "gradient": "gradients",
    "output": "outputs",
}


class Tenants:
    """The values of a program as tenants of storages: when each is written, and its region.

    `values` are always those of one storage, in the order in which they are written.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.born = {v: i for i, step in enumerate(program.steps) for v in step.writes}
        roots = {program.storage(v): program.values[v].kind for v in program.outputs}
        self.kinds: dict[int, Kind] = {
            v: kind for v, kind in roots.items() if program.values[v].kind == "activation"
        }

    def at(self, values: Sequence[int], step: int) -> int:
        """The index of the occupant of a storage at a step: the last written by then."""
        return max((i for i, v in enumerate(values) if self.born[v] <= step), default=0)

    def longest(self, values: Sequence[int], last: int) -> int:
        """The index of the longest occupant, held until step `last`; a result before others."""
        ends = pairwise((*(self.born[v] for v in values), last + 1))
        spans = [until - since for since, until in ends]
        results = [self._kind(v) != "activation" for v in values]
        return max(range(len(values)), key=lambda i: (results[i], spans[i], i))

    def turn(self, values: Sequence[int]) -> tuple[int, tuple[Region, Region]] | None:
        """The first step of backward to overwrite forward values, the regions before and then."""
        turn = next((i for i, v in enumerate(values) if not self._is_forward(v)), 0)
        if not turn:
            return None
        return self.born[values[turn]], (self.region(values, 0), self.region(values, turn))

    def region(self, values: Sequence[int], number: int) -> Region:
        """The region of one of `values`, and of the storage while it is the occupant.

        Values written over it in the same half of the step decide: a partial sum is the gradient
        that it becomes.  Values of backward, repeats and updates beside results are temporary.
        """
        forward = [self._is_forward(v) for v in values]
        ends = max(i for i, half in enumerate(forward) if half == forward[number])
        kind = self._kind(values[ends])
        if kind == "activation" and not forward[number]:
            return TEMPORARIES
        return REGIONS[kind]

    def _kind(self, value: int) -> Kind:
        return self.kinds.get(value, self.program.values[value].kind)

    def _is_forward(self, value: int) -> bool:
        """Whether a value is there before backward begins: inputs and parameters are."""
        maker = self.born.get(value)
        return maker is None or self.program.steps[maker].stage == "forward"

"""The memory of a schedule, step by step: the one source of every planned figure.

While a step runs, its reads, its writes and its workspace are alive together, but for an output
written over an input that dies there.  Views take nothing and keep their storage alive; parameters,
constants and inputs are always alive, outputs from where they are computed, but for values written
over a parameter.  It agrees with `liveness.lifetimes` of the replayed program, without building
that program, unless a schedule reads a parameter after its next value is there: then the replayed
program needs room for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from gradtool.planning.liveness import always_live, workspace_bytes
from gradtool.program import Program
from gradtool.program.in_place import donors

_KEPT = "_simulator"


class Simulator:
    """A program as sizes and numbers of storages, ready to weigh many schedules.

    `reads` and `writes` are the storages that each step touches and that steps compute (always-live
    ones left out), `bytes` their sizes, `work` the workspace of each step, `fixed` the bytes that
    are always alive, `live_out` the storages that stay to the end once they are computed.  Where an
    instance of one of the storages `donates` of a step ends, the step's writes among `targets` take
    no bytes of their own; that is -1, which is no storage, where there are none.
    """

    @classmethod
    def of(cls, program: Program) -> Simulator:
        """The simulator of a program, made once: the home of its cached properties."""
        kept = vars(program)
        if _KEPT not in kept:
            kept[_KEPT] = cls(program)
        found: Simulator = kept[_KEPT]
        return found

    def __init__(self, program: Program) -> None:
        self.program = program
        made = {v for step in program.steps for v in step.writes}
        sizes = {v: program.aligned(program.values[v].bytes) for v in sorted(made)}
        self.bytes: dict[int, int] = sizes
        self.reads: list[tuple[int, ...]] = []
        self.writes: list[tuple[int, ...]] = []
        self.work = [workspace_bytes(program, step) for step in program.steps]
        self.donates: list[tuple[int, ...]] = []
        self.targets: list[int] = []
        self.live_out = {r for v in program.outputs if (r := program.storage(v)) in made}
        self.fixed = always_live(program)
        outputs = {program.storage(v) for v in program.outputs}
        for step in program.steps:
            roots = dict.fromkeys(program.storage(v) for v in step.reads)
            self.reads.append(tuple(r for r in roots if r in made))
            self.writes.append(tuple(step.writes))
            self.donates.append(donors(program, step, outputs))
            self.targets.append(next(step.writes) if self.donates[-1] else -1)
        self.read = {r for reads in self.reads for r in reads}

    def profile(self, order: Sequence[int]) -> list[int]:
        """Bytes alive at each position of an order.

        Instances that nobody reads count while they are computed only if nobody reads any instance
        of that value; steps all of whose results are dead should not be there (`schedule.pruned`).
        """
        born, dies, sizes, touched = self._lives(order)
        change = [0] * (len(order) + 1)
        for first, last, size in zip(born, dies, sizes, strict=True):
            change[first] += size
            change[last + 1] -= size
        live = [self.fixed + size for size in accumulate(change[:-1])]
        for position, step in enumerate(order):
            live[position] += self.work[step]
            target, here = self.targets[step], touched[position]
            if target in here and any(dies[here[r]] == position for r in self.donates[step]):
                live[position] -= sizes[here[target]]
        return live

    def peak(self, order: Sequence[int]) -> int:
        """The most bytes alive at once."""
        return max(self.profile(order), default=self.fixed)

    def _lives(
        self, order: Sequence[int]
    ) -> tuple[list[int], list[int], list[int], list[dict[int, int]]]:
        """First and last position and bytes of each instance; the instances at each position."""
        latest: dict[int, int] = {}
        born: list[int] = []
        dies: list[int] = []
        owner: list[int] = []
        used: list[bool] = []
        touched: list[dict[int, int]] = []
        for position, step in enumerate(order):
            here = {}
            for root in self.reads[step]:
                instance = here[root] = latest[root]
                dies[instance], used[instance] = position, True
            for root in self.writes[step]:
                if root in self.live_out and root in latest:
                    continue
                here[root] = latest[root] = len(born)
                born.append(position)
                dies.append(position)
                owner.append(root)
                used.append(root not in self.read)
            touched.append(here)
        for root in sorted(self.live_out & latest.keys()):
            dies[latest[root]], used[latest[root]] = len(order) - 1, True
        sizes = [self.bytes[r] if u else 0 for r, u in zip(owner, used, strict=True)]
        return born, dies, sizes, touched

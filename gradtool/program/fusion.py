"""Fusion of elementwise steps into one native kernel: values between them are never written.

A step waits for the only reader of its result, if that is elementwise, too, and of the same shape,
and if nothing larger than that result has to wait with it.  Each operation rounds as before, so
bits are those of the steps apart.  A group is called as its last step.

A plan made for groups (`Program.is_grouped`) says which steps run together: otherwise recomputed
steps would have fewer readers than their originals, and groups of their own.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from types import MappingProxyType

from gradtool.ops.elementwise.native import GROUP, MOST, PROGRAMS, Operation, Symbol
from gradtool.program import Program, Step, Value


def without(program: Program, gone: Collection[int]) -> Program:
    """The program without dead values; the others are renumbered."""
    kept = [v for v in range(len(program.values)) if v not in gone]
    new = {v: i for i, v in enumerate(kept)}

    def renumbered(values: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return tuple(None if v is None else new[v] for v in values)

    def value(datum: Value) -> Value:
        if datum.view is None and datum.alias is None:
            return datum
        view = datum.view and replace(datum.view, base=new[datum.view.base])
        return replace(datum, view=view, alias=None if datum.alias is None else new[datum.alias])

    def step(old: Step) -> Step:
        return replace(old, inputs=renumbered(old.inputs), outputs=renumbered(old.outputs))

    return replace(
        program,
        values=tuple(value(program.values[v]) for v in kept),
        steps=tuple(map(step, program.steps)),
        inputs=tuple(new[v] for v in program.inputs),
        outputs=tuple(new[v] for v in program.outputs),
        constants=MappingProxyType({new[v]: a for v, a in program.constants.items() if v in new}),
        gradients=MappingProxyType({name: new[v] for name, v in program.gradients.items()}),
        state=MappingProxyType({new[old]: new[now] for old, now in program.state.items()}),
        loss=None if program.loss is None else new[program.loss],
    )


@dataclass(frozen=True)
class _Group:
    """Fused steps; `operations` are in order, the last gives the result."""

    steps: tuple[Step, ...]
    operations: tuple[Operation, ...]

    @property
    def leaves(self) -> list[int]:
        """The values read, in order."""
        symbols = (s for _, *operands in self.operations for s in operands)
        return list(dict.fromkeys(int(n) for kind, n in symbols if kind == "leaf"))


Waiting = tuple[frozenset[int], int, bool]
"""Values that wait for a step, the one that is then not written, and whether the latter is larger:
a decision that sizes may turn round."""


def fused(program: Program, weighed: list[Waiting] | None = None) -> Program:
    """The program whose native elementwise steps are grouped; decisions by size are `weighed`."""
    found = _Fusion(program, weighed)
    groups = [found.group(index) for index in range(len(program.steps))]
    inside = found.inside
    steps = [
        step if group is None or len(group.steps) == 1 else _as_step(program, group)
        for index, (step, group) in enumerate(zip(program.steps, groups, strict=True))
        if index not in inside
    ]
    between = {v for index in inside for v in program.steps[index].writes}
    return without(dataclasses.replace(program, steps=tuple(steps)), between)


class _Fusion:
    """Groups as they grow, over the steps of a program in order."""

    def __init__(self, program: Program, weighed: list[Waiting] | None) -> None:
        self.program = program
        self._weighed = weighed
        self.inside: set[int] = set()  # steps that run with a later one
        self._open: dict[int, tuple[int, _Group]] = {}  # by result: the last step, and the group
        self._readers = Counter(v for step in program.steps for v in dict.fromkeys(step.reads))
        views = {v.view.base for v in program.values if v.view is not None}
        self._held = {*program.outputs, *views}
        self._last_read: dict[int, int] = {}
        self._overwritten: dict[int, int] = {}
        for index, step in enumerate(program.steps):
            self._last_read |= dict.fromkeys(map(program.storage, step.reads), index)
            over = (program.values[v].alias for v in step.writes)
            for value in over:
                if value is not None:
                    self._overwritten.setdefault(value, index)

    def group(self, index: int) -> _Group | None:
        """The group of a step so far, as its last one; None if it is not elementwise."""
        step = self.program.steps[index]
        if not step.is_native or step.op not in PROGRAMS or len(step.outputs) != 1:
            return None
        (result,) = step.writes
        operations: tuple[Operation, ...] = ()
        steps: tuple[Step, ...] = ()
        taken: dict[int, int] = {}
        for value in dict.fromkeys(step.reads):
            if (found := self._open.get(value)) is None or not self._may_wait(found, index):
                continue
            last, group = found
            if len(operations) + len(group.operations) < MOST:
                operations = (*operations, *_after(group.operations, len(operations)))
                steps = (*steps, *group.steps)
                taken[value] = len(operations) - 1
                self.inside.add(last)
        operations = (*operations, *_operations(self.program, step, taken, len(operations)))
        made = _Group((*steps, step), operations)
        alias = self.program.values[result].alias
        if self._readers[result] == 1 and result not in self._held and alias is None:
            self._open[result] = (index, made)
        return made

    def _may_wait(self, found: tuple[int, _Group], index: int) -> bool:
        """Whether a group may be fused into another step, a reader of its result."""
        last, group = found
        values, step = self.program.values, self.program.steps[index]
        between, result = (values[next(s.writes)].spec for s in (group.steps[-1], step))
        if between is None or result is None or between.shape != result.shape:
            return False
        if any(self._is_gone(v, index) for v in group.leaves):
            return False
        if self.program.is_grouped:
            return bool(step.group) and step.group == group.steps[-1].group
        storages = [self.program.storage(v) for v in group.leaves]
        waiting = {v for v in storages if last <= self._last_read[v] < index and not self._stays(v)}
        may = sum(values[v].bytes for v in waiting) <= between.bytes
        if waiting and self._weighed is not None:
            self._weighed.append((frozenset(waiting), next(group.steps[-1].writes), may))
        return may

    def _is_gone(self, leaf: int, index: int) -> bool:
        """Whether the storage of a leaf may be overwritten before a step, or by the step itself."""
        storage = self.program.storage(leaf)
        over = self._overwritten.get(storage, math.inf)
        return over < index or (over == index and leaf != storage)

    def _stays(self, storage: int) -> bool:
        kind = self.program.values[storage].kind
        return kind in ("parameter", "state", "constant") or storage in self._held


def _after(operations: Iterable[Operation], count: int) -> Iterable[Operation]:
    """Operations behind so many others."""
    for name, *operands in operations:
        moved = ((k, n + count) if k == "made" else (k, n) for k, n in operands)
        yield (name, *moved)


def _operations(
    program: Program, step: Step, made: dict[int, int], count: int
) -> Iterable[Operation]:
    """The operations of a step, behind `count` others, some of which made its inputs."""
    specs = [None if v is None else program.values[v].spec for v in step.inputs]
    given: list[Symbol] = [
        ("made", made[v]) if v in made else ("leaf", v) for v in step.inputs if v is not None
    ]
    for name, *operands in PROGRAMS[step.op](*specs, **step.attributes):
        symbols = (
            given[int(n)] if kind == "leaf" else (kind, n + count if kind == "made" else n)
            for kind, n in operands
        )
        yield (name, *symbols)


def _as_step(program: Program, group: _Group) -> Step:
    """A group as one step: its inputs are the leaves, and its attributes the operations."""
    last, leaves = group.steps[-1], group.leaves
    (result,) = last.writes
    spec = program.values[result].spec
    assert spec is not None  # noqa: S101 - a native step
    named = {v: i for i, v in enumerate(leaves)}
    operations = tuple(
        (name, *(("leaf", named[n]) if k == "leaf" else (k, n) for k, n in operands))
        for name, *operands in group.operations
    )
    flops = [step.flops for step in group.steps]
    return dataclasses.replace(
        last,
        op=GROUP,
        version=1,
        inputs=tuple(leaves),
        attributes={"operations": operations},
        may_inplace=tuple(i for i, v in enumerate(leaves) if program.values[v].spec == spec),
        recomputable=all(step.recomputable for step in group.steps),
        flops=None if None in flops else sum(f for f in flops if f is not None),
        moved=spec.bytes + sum(program.values[v].bytes for v in leaves),
        nodes=tuple(name for step in group.steps for name in step.names),
    )

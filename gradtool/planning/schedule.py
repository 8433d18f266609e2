"""A schedule: the steps of a program in the order they run, some of them more than once.

A read takes the latest instance of a value.  Values that must stay to the end anyway (outputs and
their aliases) are computed once: a later instance of their step leaves them out.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gradtool.program import Program, Step, Value, View
from gradtool.program.donation import overwriting

RECOMPUTED = "_recompute"
MIRRORED = "_mirror"
_LATER = re.compile(rf"({RECOMPUTED}|{MIRRORED})(_\d+)?")


@dataclass(frozen=True)
class Schedule:
    """Numbers of steps in running order, and the suffix of the name of each instance.

    The suffix of a first instance is empty: it keeps the name of the step.
    """

    order: tuple[int, ...]
    suffixes: tuple[str, ...]

    @classmethod
    def of(cls, order: Iterable[int], suffix: str = RECOMPUTED) -> Schedule:
        """The schedule of an order; the third instance of a step is called `<name><suffix>_2`."""
        order = tuple(order)
        counts: dict[int, int] = {}
        suffixes = []
        for step in order:
            again = counts[step] = counts.get(step, -1) + 1
            suffixes.append(f"{suffix}_{again}" if again > 1 else suffix if again else "")
        return cls(order, tuple(suffixes))

    @property
    def recomputed(self) -> tuple[int, ...]:
        """The recomputed steps, once for every further time."""
        return tuple(s for s, suffix in zip(self.order, self.suffixes, strict=True) if suffix)


def original(name: str) -> str:
    """The first instance of a plan's `name`; `name` itself if it is no later instance."""
    begin = max(name.rfind(RECOMPUTED), name.rfind(MIRRORED))
    return name[:begin] if begin > 0 and _LATER.fullmatch(name, begin) else name


def instances(program: Program, order: Sequence[int]) -> tuple[list[dict[int, int]], set[int]]:
    """By position, the position whose instance of each root it reads; and the roots pinned.

    Inputs, parameters and constants are not among them.

    Raises:
        ValueError: a position reads a value that is computed later.
    """
    live_out = {program.storage(v) for v in program.outputs}
    latest: dict[int, int] = {}
    made = {program.storage(v) for s in program.steps for v in s.writes}
    found: list[dict[int, int]] = []
    for position, number in enumerate(order):
        step = program.steps[number]
        roots = dict.fromkeys(r for v in step.reads if (r := program.storage(v)) in made)
        if any(r not in latest for r in roots):
            absent = next(r for r in roots if r not in latest)
            name = program.values[absent].name
            raise ValueError(f"{step.name} reads {name}, which is computed later")
        found.append({r: latest[r] for r in roots})
        for value in step.writes:
            if value not in live_out or value not in latest:
                latest[value] = position
    return found, live_out


def pruned(program: Program, schedule: Schedule) -> Schedule:
    """The schedule without dead instances.

    The first instance of a step stays if nobody reads any instance of it: it is a result.  The
    first of those that are left keeps the name of the step.
    """
    keep = alive(program, schedule.order)
    kept = [p for p, stays in enumerate(keep) if stays]
    order = tuple(schedule.order[p] for p in kept)
    first = {step: p for p, step in zip(reversed(kept), reversed(order), strict=True)}
    names = schedule.suffixes
    return Schedule(order, tuple("" if first[schedule.order[p]] == p else names[p] for p in kept))


def alive(program: Program, order: Sequence[int]) -> list[bool]:
    """Whether each position of an order gives a result or a value read later."""
    reads, live_out = instances(program, order)
    read = {program.storage(v) for s in program.steps for v in s.reads}
    used: set[int] = set()
    found = [False] * len(order)
    first = {step: p for p, step in reversed(list(enumerate(order)))}
    for position in range(len(order) - 1, -1, -1):
        writes = list(program.steps[order[position]].writes)
        result = any(v in live_out for v in writes) or not any(v in read for v in writes)
        if position in used or (result and first[order[position]] == position):
            found[position] = True
            used.update(reads[position].values())
    return found


def replay(program: Program, schedule: Schedule) -> Program:
    """The program of a schedule: later instances are steps and values of their own.

    Only live outputs are written, as in a graph without dead values.

    Raises:
        ValueError: a step reads a value that is computed later, or a step is missing.
    """
    schedule = pruned(program, schedule)
    return _Replay(program, schedule).program()


class _Replay:
    """The values of the new program, by old value and position of the instance they lie in."""

    def __init__(self, program: Program, schedule: Schedule) -> None:
        self.old = program
        self.schedule = schedule
        self.reads, self.live_out = instances(program, schedule.order)
        self.values: list[Value] = []
        self.numbers: dict[tuple[int, int], int] = {}
        self.made = {v for s in program.steps for v in s.writes}
        self.first = {s: p for p, s in reversed(list(enumerate(schedule.order)))}
        self.producer = {v: i for i, s in enumerate(program.steps) for v in s.writes}
        self.read = {program.storage(v) for s in program.steps for v in s.reads}
        wanted = {(r, p) for reads in self.reads for r, p in reads.items()}
        self.wanted = wanted | {
            (v, self.first[self.producer[v]]) for v in self.live_out & self.made
        }

    def program(self) -> Program:
        """The new program: steps in running order, every value numbered where it is first met."""
        old = self.old
        for value in range(len(old.values)):
            if old.storage(value) not in self.made:
                self._number(value, -1, old.values[value], "")
        steps = tuple(self._step(p) for p in range(len(self.schedule.order)))
        number = {v: self._value(v, self._home(v)) for v in old.outputs}
        named = {v: self._value(v, self._home(v)) for v in old.gradients.values()}
        state = {self.numbers[v, -1]: self._value(n, self._home(n)) for v, n in old.state.items()}
        made = dataclasses.replace(
            old,
            values=tuple(self.values),
            steps=steps,
            inputs=tuple(self.numbers[v, -1] for v in old.inputs),
            outputs=tuple(number[v] for v in old.outputs),
            constants=MappingProxyType({self.numbers[v, -1]: a for v, a in old.constants.items()}),
            gradients=MappingProxyType({name: named[v] for name, v in old.gradients.items()}),
            state=MappingProxyType(state),
            loss=None if old.loss is None else self._value(old.loss, self._home(old.loss)),
        )
        return overwriting(made)

    def _home(self, value: int) -> int:
        """The position of the first instance of a value, -1 if no step computes it."""
        root = self.old.storage(value)
        return self.first[self.producer[root]] if root in self.made else -1

    def _number(self, value: int, position: int, datum: Value, suffix: str) -> int:
        view = datum.view
        if view is not None:
            base = self._value(view.base, position)
            datum = dataclasses.replace(datum, view=View(base, view.offset, view.strides))
        if datum.alias is not None:
            datum = dataclasses.replace(datum, alias=None)
        if suffix:
            datum = dataclasses.replace(datum, name=datum.name + suffix, kind="activation")
        index = self.numbers[value, position] = len(self.values)
        self.values.append(datum)
        return index

    def _value(self, value: int, position: int) -> int:
        """The new number of an old value in the instance at a position."""
        found = self.numbers.get((value, position))
        if found is not None:
            return found
        suffix = self.schedule.suffixes[position] if position >= 0 else ""
        return self._number(value, position, self.old.values[value], suffix)

    def _step(self, position: int) -> Step:
        step = self.old.steps[self.schedule.order[position]]
        suffix = self.schedule.suffixes[position]
        reads = self.reads[position]
        inputs = tuple(
            None if v is None else self._value(v, reads.get(self.old.storage(v), -1))
            for v in step.inputs
        )
        outputs = tuple(
            self._value(v, position) if v is not None and self._is_wanted(v, position) else None
            for v in step.outputs
        )
        if not suffix:
            return dataclasses.replace(step, inputs=inputs, outputs=outputs)
        return dataclasses.replace(
            step,
            name=step.name + suffix,
            inputs=inputs,
            outputs=outputs,
            stage="recompute",
            source=step.name,
            group=step.group and step.group + suffix,
        )

    def _is_wanted(self, value: int, position: int) -> bool:
        """Whether an instance of an output is read or returned, or nobody ever reads the value."""
        unread = value not in self.read and value not in self.live_out
        return (value, position) in self.wanted or unread

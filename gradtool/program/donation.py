"""Donation of old parameters and state to their new values, once nobody reads them any more.

The parameters of a training step are held throughout, so a new value takes no bytes of its own: the
step leaves the arena as the next step wants it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from gradtool.program import Program, Value
from gradtool.program.in_place import overwrites

Readers = Mapping[int, Sequence[int]]


def overwriting(program: Program) -> Program:
    """The program with donation of old values of `state` to next ones wherever possible.

    It is possible if type and shape are the same and every step that reads the old value runs
    before the one that writes the new one, or is that step and its kernel works in place.  Values
    between the old and the new one in updates, as a sum that grows term by term, lie there as well.
    """
    if not program.state:
        return program
    readers = _readers(program)
    writer = {v: i for i, step in enumerate(program.steps) for v in step.writes}
    returned = {program.storage(v) for v in program.outputs}
    alias: dict[int, int] = {}
    for old, new in program.state.items():
        if new not in writer or new in alias or old in returned:
            continue
        for way in (_way(program, old, new, readers), [old, new]):
            alike = all(_alike(program.values[old], program.values[each]) for each in way[1:])
            if alike and returned.isdisjoint(way[1:-1]) and all(
                _may_replace(program, *pair, writer[pair[1]], readers) for pair in pairwise(way)
            ):  # fmt: skip
                alias |= dict.fromkeys(way[1:], old)
                break
    values = tuple(
        datum if datum.alias == alias.get(index) else replace(datum, alias=alias.get(index))
        for index, datum in enumerate(program.values)
    )
    return replace(program, values=values)


class Replacement(NamedTuple):
    """The next value of a piece of state: its bytes, who writes it, and who reads the old one.

    It may lie over that where `may_replace`, once nobody reads it any more; `in_step` where its own
    step may be the last that does.
    """

    new: int
    bytes: int
    writer: int
    readers: tuple[int, ...]
    may_replace: bool
    in_step: bool

    def lies_over(self, first: Mapping[int, int], last: Mapping[int, int]) -> bool:
        """Whether the old storage is donated if steps run first and last at these positions."""
        written = first[self.writer]
        read = max((last[reader] for reader in self.readers), default=-1)
        return self.may_replace and (read < written or (read == written and self.in_step))


def replacements(program: Program) -> Iterator[Replacement]:
    """The next values of state made by one step from the old ones each, by the rule above."""
    readers = _readers(program)
    writer = {v: i for i, step in enumerate(program.steps) for v in step.writes}
    returned = {program.storage(v) for v in program.outputs}
    for old, new in program.state.items():
        if new not in writer:
            continue
        before, after = program.values[old], program.values[new]
        step = program.steps[writer[new]]
        size = 0 if after.spec is None else program.aligned(after.spec.bytes)
        may = old not in returned and _alike(before, after)
        over = overwrites(program, step, old, step.outputs.index(new))
        yield Replacement(new, size, writer[new], tuple(readers.get(old, ())), may, over)


def write_after_read(program: Program) -> Iterator[tuple[int, int]]:
    """Pairs of steps: one reads an old value, the other is the first that writes over it."""
    writer = {v: i for i, step in enumerate(program.steps) for v in step.writes}
    first: dict[int, int] = {}
    for value, datum in enumerate(program.values):
        if datum.alias is not None:
            first[datum.alias] = min(writer[value], first.get(datum.alias, writer[value]))
    if first:
        readers = _readers(program)
        for old, write in first.items():
            yield from ((reader, write) for reader in readers.get(old, ()) if reader != write)


def _way(program: Program, old: int, new: int, readers: Readers) -> list[int]:
    """The old value, its updates one after the other, and the new value."""
    way = [old]
    while way[-1] != new:
        reading = readers.get(way[-1], ())
        if not reading or (len(way) > 1 and len(reading) > 1):
            return [old, new]
        step = program.steps[reading[-1]]
        made = new if new in step.writes else step.outputs[0]
        if (
            made is None
            or step.stage != "update"
            or not overwrites(program, step, way[-1], step.outputs.index(made))
        ):
            return [old, new]
        way.append(made)
    return way


def _may_replace(program: Program, old: int, new: int, write: int, readers: Readers) -> bool:
    """Whether a step may write a value over another one."""
    step = program.steps[write]
    over = overwrites(program, step, old, step.outputs.index(new))
    return all(i < write or (i == write and over) for i in readers.get(old, ()))


def _readers(program: Program) -> dict[int, list[int]]:
    """The readers of each storage."""
    found: dict[int, list[int]] = {}
    for index, step in enumerate(program.steps):
        for root in dict.fromkeys(program.storage(v) for v in step.reads):
            found.setdefault(root, []).append(index)
    return found


def _alike(old: Value, new: Value) -> bool:
    held = old.kind in ("parameter", "state") and old.view is None and new.view is None
    return held and old.spec is not None and old.spec == new.spec

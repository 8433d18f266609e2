"""A program as orders see it: precedence, and the storages touched by steps.

Orders here run every step once.  Steps that may not run twice, above all those that draw at random,
keep their order among each other, so that every order computes the same bits.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from gradtool.planning.flow import Integers, Mask
from gradtool.planning.simulate import Simulator
from gradtool.program import Program
from gradtool.program.donation import write_after_read


class StepGraph:
    """Steps and storages by number; storages that are always alive are only counted, in `fixed`.

    `before` and `after` are the direct predecessors and successors of each step.  `reads` and
    `writes` are the storages that a step touches, `work` the bytes of its workspace, `donates` the
    storages one of which its first output (of `gain` bytes) may be written over.  Of each storage,
    `size` is in bytes, `maker` the step that computes it, `readers` those that read it, and
    `stays` whether it lives to the end.  All sizes and workspaces are multiples of `grain`.
    """

    def __init__(self, program: Program) -> None:
        simulator = Simulator.of(program)
        number = {root: i for i, root in enumerate(simulator.bytes)}

        def local(roots: Sequence[int]) -> tuple[int, ...]:
            return tuple(number[r] for r in roots)

        self.count = len(program.steps)
        self.fixed = simulator.fixed
        self.reads = [local(roots) for roots in simulator.reads]
        self.writes = [local(roots) for roots in simulator.writes]
        self.donates = [local(roots) for roots in simulator.donates]
        self.work = simulator.work
        self.size = list(simulator.bytes.values())
        self.gain = [simulator.bytes.get(target, 0) for target in simulator.targets]
        self.grain = math.gcd(*self.size, *self.work) or 1
        self.stays = [root in simulator.live_out for root in number]
        self.maker = [0] * len(number)
        readers: list[list[int]] = [[] for _ in number]
        for step in range(self.count):
            for storage in self.writes[step]:
                self.maker[storage] = step
            for storage in self.reads[step]:
                readers[storage].append(step)
        self.readers = [tuple(steps) for steps in readers]
        self.before, self.after = _precedence(program)
        self._index()

    def _index(self) -> None:
        """The same as arrays, lists as pairs: (storage, reader), (before, after), (taker, taken).

        `held` are the bytes a step touches together with its workspace.
        """
        self.sizes = np.array(self.size, dtype=np.int64)
        self.makers = np.array(self.maker, dtype=np.int64)
        self.staying = np.array(self.stays, dtype=bool)
        self.pairs = _pairs(self.readers)
        self.edges = _pairs(self.after)
        self.taken = _pairs(self.donates)
        self.works = np.array(self.work, dtype=np.int64)
        self.gains = np.array(self.gain, dtype=np.int64)
        touched = [(*r, *w) for r, w in zip(self.reads, self.writes, strict=True)]
        room = zip(touched, self.work, strict=True)
        self.held = [sum(self.size[s] for s in t) + work for t, work in room]

    def ordered(self, pairs: Iterable[tuple[int, int]]) -> StepGraph:
        """The same with more precedence: the first step of each pair runs before the second."""
        graph = copy.copy(self)
        before, after = list(self.before), list(self.after)
        for first, second in pairs:
            if second not in after[first]:
                after[first] = (*after[first], second)
                before[second] = (*before[second], first)
        graph.before, graph.after, graph.edges = before, after, _pairs(after)
        for name in ("before_bits", "after_bits", "_reached"):
            graph.__dict__.pop(name, None)
        return graph

    @cached_property
    def before_bits(self) -> list[int]:
        """The predecessors of each step as an integer."""
        return [bits(steps) for steps in self.before]

    @cached_property
    def after_bits(self) -> list[int]:
        """The successors of each step as an integer."""
        return [bits(steps) for steps in self.after]

    @cached_property
    def weights(self) -> tuple[list[int], list[int], list[int]]:
        """The readers of each storage as an integer; bytes that each step leaves, and takes."""
        lasts = [r or stays for r, stays in zip(self.readers, self.stays, strict=True)]
        left = [sum(self.size[s] for s in w if lasts[s]) for w in self.writes]
        writes = zip(self.writes, self.work, strict=True)
        room = [sum(self.size[s] for s in w) + work for w, work in writes]
        return [bits(steps) for steps in self.readers], left, room

    def closure(self, steps: Iterable[int], *, backward: bool) -> list[int]:
        """The given steps and all their predecessors, or successors."""
        neighbours = self.before if backward else self.after
        found = list(dict.fromkeys(steps))
        is_found = bytearray(self.count)
        for step in found:
            is_found[step] = True
        waiting = list(found)
        while waiting:
            for step in neighbours[waiting.pop()]:
                if not is_found[step]:
                    is_found[step] = True
                    found.append(step)
                    waiting.append(step)
        return found

    def reach(self, step: int, *, backward: bool) -> Mask:
        """A step and all its predecessors, or successors."""
        if self._reached is None:
            return mask(bits(self.closure([step], backward=backward)), self.count)
        return mask(self._reached[backward][step], self.count)

    @cached_property
    def _reached(self) -> tuple[list[int], list[int]] | None:
        """The successors of each step, and its predecessors, with itself; None if in a cycle."""
        missing = [len(steps) for steps in self.before]
        order = [step for step, count in enumerate(missing) if not count]
        for step in order:
            for other in self.after[step]:
                missing[other] -= 1
                if not missing[other]:
                    order.append(other)
        if len(order) < self.count:
            return None
        later, earlier = ([1 << step for step in range(self.count)] for _ in range(2))
        for step in order:
            for other in self.before[step]:
                earlier[step] |= earlier[other]
        for step in reversed(order):
            for other in self.after[step]:
                later[step] |= later[other]
        return later, earlier

    def live(self, run: Mask) -> int:
        """Bytes alive between two steps, once a set of steps has run."""
        storage, reader = self.pairs
        waits = np.bincount(storage[~run[reader]], minlength=len(self.sizes)) > 0
        return self.fixed + int(self.sizes[run[self.makers] & (waits | self.staying)].sum())

    def profile(self, order: Sequence[int] | Integers) -> Integers:
        """Bytes alive while each step of an order runs, by position."""
        position = np.empty(self.count, dtype=np.int64)
        position[np.asarray(order, dtype=np.int64)] = np.arange(self.count)
        born = position[self.makers]
        dies = born.copy()
        np.maximum.at(dies, self.pairs[0], position[self.pairs[1]])
        dies[self.staying] = self.count - 1
        change = np.zeros(self.count + 1, dtype=np.int64)
        np.add.at(change, born, self.sizes)
        np.subtract.at(change, dies + 1, self.sizes)
        live: Integers = self.fixed + np.cumsum(change[:-1])
        live[position] += self.works
        taker, taken = self.taken
        takers = np.unique(taker[dies[taken] == position[taker]])
        live[position[takers]] -= self.gains[takers]
        return live

    def peak(self, order: Sequence[int] | Integers) -> int:
        """The most bytes alive at once."""
        return int(self.profile(order).max(initial=self.fixed))


def bits(steps: Iterable[int]) -> int:
    """A set of steps as an integer."""
    found = 0
    for step in steps:
        found |= 1 << step
    return found


def mask(bits: int, count: int) -> Mask:
    """A set of steps, given as an integer, as an array."""
    raw = np.frombuffer(bits.to_bytes((count + 7) // 8, "little"), dtype=np.uint8)
    return np.unpackbits(raw, bitorder="little", count=count).astype(bool)


def _precedence(program: Program) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """The direct predecessors and successors of each step."""
    maker = {v: i for i, step in enumerate(program.steps) for v in step.writes}
    before: list[tuple[int, ...]] = []
    after: list[list[int]] = [[] for _ in program.steps]
    readers: dict[int, list[int]] = {}
    for reader, writer in write_after_read(program):
        readers.setdefault(writer, []).append(reader)
    kept = -1
    for index, step in enumerate(program.steps):
        reads = (v for read in step.reads for v in _bases(program, read))
        needed = {maker[v]: None for v in reads if v in maker}
        needed |= dict.fromkeys(readers.get(index, ()))
        if not step.recomputable:
            if kept >= 0:
                needed[kept] = None
            kept = index
        before.append(tuple(needed))
        for earlier in needed:
            after[earlier].append(index)
    return before, [tuple(steps) for steps in after]


def _bases(program: Program, value: int) -> list[int]:
    """A value and the values it aliases."""
    found = [value]
    while (view := program.values[found[-1]].view) is not None:
        found.append(view.base)
    return found


def _pairs(lists: Sequence[Sequence[int]]) -> tuple[Integers, Integers]:
    """(i, j) for every j of the i-th list, as two arrays."""
    lengths = np.array([len(found) for found in lists], dtype=np.int64)
    flat: list[Any] = [j for found in lists for j in found]
    return np.repeat(np.arange(len(lists)), lengths), np.array(flat, dtype=np.int64)

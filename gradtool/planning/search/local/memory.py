"""A schedule and what annealing keeps up to date about it, as one list of integers.

The list begins with numbers (where the fields lie, and what is counted); behind them come the
fields: `m[m[COST] + step]` is the cost of a step.  Compiled code takes one array much faster than
many.

An instance of step s is numbered 16 · s + slot, and so is that of a storage.  A further step
without effect stands at the end of the schedule: what lives to the end dies there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, MutableSequence, Sequence
from itertools import pairwise
from typing import TypeAlias

from gradtool.planning.simulate import Simulator

Memory: TypeAlias = MutableSequence[int]

BITS = 4
SLOTS = 1 << BITS
MOST_UNDOS = 32

# of a step: the lists of storages that it reads, writes, and may write its first output over (from
# m[m[READS] + step] to m[m[READS] + step + 1]); that output, -1 if it never does; its cost and
# workspace; whether it may run again; the steps that draw at random before and after it, -1 if none
READS, WRITES, TAKES, TARGET, COST, WORK, REPEATS, EARLIER, LATER = range(9)
# of a storage: its maker, the list of steps that read it, its bytes, whether it lives to the end
MAKER, READERS, SIZE, PINNED = range(9, 13)
# of a position: the instance that runs there, the bytes alive between it and the position before,
# and those that come on top while it runs
ORDER, GAP, OWN = range(13, 16)
# of a step: how many instances of it there are, and its place among those that run repeatedly
COUNT, PLACE = range(16, 18)
# of an instance: its position (-1: none); the slots of a step's instances in running order
AT, SEAT = range(18, 20)
# of an instance of a storage: the instance that reads it last (its maker's if nobody does)
LAST = 20
# lists: instances of storages out of the gaps, moves to take back, steps that run repeatedly
TOUCHED, UNDO, MULTI = range(21, 24)
# of a position of the best schedule: its step
BEST = 24
FIELDS = 25

(
    BUDGET, LENGTH, CAPACITY, END, EXTRA, EXCESS, RANDOM, TOUCHES, UNDOS, MULTIS, LOW, HIGH,
    LAST_EXTRA, LAST_EXCESS, BEST_EXTRA, BEST_LENGTH,
) = range(FIELDS, FIELDS + 16)  # fmt: skip
HEAD = FIELDS + 16


class Layout:
    """The list, as it grows by one field after the other."""

    def __init__(self) -> None:
        self.m = [0] * HEAD

    def field(self, number: int, values: Iterable[int]) -> None:
        """Append a field."""
        self.m[number] = len(self.m)
        self.m += values

    def lists(self, number: int, rows: Sequence[Sequence[int]]) -> None:
        """Append lists, and where each begins."""
        begin = len(self.m) + len(rows) + 1
        starts = [begin]
        for row in rows:
            starts.append(starts[-1] + len(row))
        self.field(number, starts)
        for row in rows:
            self.m += row


def memory(
    simulator: Simulator,
    start: Sequence[int],
    costs: Sequence[int | None],
    budget: int,
    *,
    seed: int,
) -> list[int]:
    """The memory of a start schedule, nothing counted yet: see `held.begin`."""
    layout = Layout()
    _static(layout, simulator, costs)
    count, roots = len(costs), len(simulator.bytes)
    runs = Counter(start)
    multiple = [s for s in range(count) if runs[s] > 1]
    capacity = len(start) + 2 * count + MOST_UNDOS
    schedule = _instances([*start, count])
    at = [-1] * ((count + 1) << BITS)
    for position, instance in enumerate(schedule):
        at[instance] = position
    place = [0] * (count + 1)
    for index, step in enumerate(multiple):
        place[step] = index
    layout.field(ORDER, schedule + [0] * (capacity - len(schedule)))
    layout.field(GAP, [0] * capacity)
    layout.field(OWN, [0] * capacity)
    layout.field(COUNT, [*(runs[s] for s in range(count)), 1])
    layout.field(PLACE, place)
    layout.field(AT, at)
    layout.field(SEAT, [i % SLOTS for i in range((count + 1) << BITS)])
    layout.field(LAST, [0] * (roots << BITS))
    touches = (len(r) + len(w) for r, w in zip(simulator.reads, simulator.writes, strict=True))
    layout.field(TOUCHED, [0] * (2 * max(touches, default=0)))
    layout.field(UNDO, [0] * (3 * MOST_UNDOS))
    layout.field(MULTI, multiple + [0] * (count - len(multiple)))
    layout.field(BEST, [0] * capacity)
    m = layout.m
    m[BUDGET] = budget - simulator.fixed
    m[LENGTH], m[CAPACITY], m[END] = len(schedule), capacity, count << BITS
    m[EXTRA] = sum(costs[s] or 0 for s in start) - sum(c or 0 for c in costs)
    m[RANDOM] = seed % (2**32 - 1) + 1
    m[MULTIS] = len(multiple)
    m[BEST_EXTRA] = 1 << 62
    return m


def _instances(order: Sequence[int]) -> list[int]:
    found, seen = [], Counter[int]()
    for step in order:
        found.append((step << BITS) + seen[step])
        seen[step] += 1
    return found


def _static(layout: Layout, simulator: Simulator, costs: Sequence[int | None]) -> None:
    """What does not change: steps and storages, with the step at the end."""
    steps = simulator.program.steps
    number = {root: i for i, root in enumerate(simulator.bytes)}

    def local(rows: Sequence[Sequence[int]]) -> list[list[int]]:
        return [[number[r] for r in row] for row in rows]

    reads, writes, donates = (
        local(simulator.reads),
        local(simulator.writes),
        local(simulator.donates),
    )
    readers: list[list[int]] = [[] for _ in number]
    maker = [0] * len(number)
    for step, (row, made) in enumerate(zip(reads, writes, strict=True)):
        for root in row:
            readers[root].append(step)
        for root in made:
            maker[root] = step
    live_out = [int(root in simulator.live_out) for root in number]
    random = [i for i, step in enumerate(steps) if not step.recomputable]
    earlier, later = [-1] * (len(steps) + 1), [-1] * (len(steps) + 1)
    for one, other in pairwise(random):
        earlier[other], later[one] = one, other
    layout.lists(READS, [*reads, []])
    layout.lists(WRITES, [*writes, []])
    layout.lists(TAKES, [*donates, []])
    layout.field(TARGET, [*(number.get(target, -1) for target in simulator.targets), -1])
    layout.field(COST, [*(c or 0 for c in costs), 0])
    layout.field(WORK, [*simulator.work, 0])
    may = (s.recomputable and c is not None for s, c in zip(steps, costs, strict=True))
    layout.field(REPEATS, [*map(int, may), 0])
    layout.field(EARLIER, earlier)
    layout.field(LATER, later)
    layout.field(MAKER, maker)
    layout.lists(READERS, readers)
    layout.field(SIZE, simulator.bytes.values())
    layout.field(PINNED, live_out)

"""Formulas of tensors of one shape as lists of instructions, run one block of elements at a time.

A formula is recorded once with stand-ins for its values, then each block runs all of it: arrays go
through the cache once, whatever the number of operations, and intermediate results take so many
blocks as are alive together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

Formula = Callable[..., tuple[Any, ...]]
Operand = int | float  # the number of a value, or a constant


class Stand:
    """What stands for a value while a formula is recorded; `number` is its place on the tape."""

    def __init__(self, tape: Recorder, number: int) -> None:
        self.tape, self.number = tape, number

    def __add__(self, other: Any) -> Stand:
        return self.tape.emit("add", self, other)

    def __radd__(self, other: Any) -> Stand:
        return self.tape.emit("add", other, self)

    def __sub__(self, other: Any) -> Stand:
        return self.tape.emit("subtract", self, other)

    def __rsub__(self, other: Any) -> Stand:
        return self.tape.emit("subtract", other, self)

    def __mul__(self, other: Any) -> Stand:
        return self.tape.emit("multiply", self, other)

    def __rmul__(self, other: Any) -> Stand:
        return self.tape.emit("multiply", other, self)

    def __truediv__(self, other: Any) -> Stand:
        return self.tape.emit("divide", self, other)

    def __rtruediv__(self, other: Any) -> Stand:
        return self.tape.emit("divide", other, self)


@dataclass(frozen=True)
class Instruction:
    """`result = function(operands)`: a function of numpy, numbers of values, or constants."""

    function: str
    operands: tuple[tuple[str, Operand], ...]  # ("value", number) or ("constant", number)
    result: int

    @property
    def reads(self) -> list[int]:
        """The values read."""
        return [int(number) for kind, number in self.operands if kind == "value"]


class Recorder:
    """What a formula gets as `op`: it notes what is asked for."""

    FUNCTIONS: ClassVar[Mapping[str, str]] = {
        "Max": "maximum", "Min": "minimum", "Sign": "sign", "Sqrt": "sqrt",
    }  # fmt: skip

    def __init__(self, inputs: int) -> None:
        self.count = inputs
        self.instructions: list[Instruction] = []

    def __getattr__(self, name: str) -> Callable[..., Stand]:
        if name not in self.FUNCTIONS:
            raise AttributeError(name)
        return lambda *operands: self.emit(self.FUNCTIONS[name], *operands)

    def emit(self, function: str, *operands: Any) -> Stand:
        """Note one instruction; what stands for its result."""
        read = tuple(
            ("value", o.number) if isinstance(o, Stand) else ("constant", o) for o in operands
        )
        self.instructions.append(Instruction(function, read, self.count))
        self.count += 1
        return Stand(self, self.count - 1)


@dataclass(frozen=True)
class Tape:
    """A recorded formula.

    `numbers` are instructions of scalars alone, which run once; `elements` those of every block.
    `places` says by value that an element instruction makes where it is written: in output k
    (`("out", k)`) or in temporary k (`("room", k)`).  `copies` are pairs of an output and the value
    that is copied there at the end of a block, `rooms` the number of temporaries.
    """

    numbers: tuple[Instruction, ...]
    elements: tuple[Instruction, ...]
    places: Mapping[int, tuple[str, int]]
    copies: tuple[tuple[int, int], ...]
    rooms: int


@cache
def record(
    formula: Formula,
    present: tuple[bool, ...],
    scalars: frozenset[int],
    over: tuple[tuple[int, ...], ...],
    wanted: tuple[bool, ...],
    options: tuple[tuple[str, Any], ...],
) -> Tape:
    """Record a formula of inputs of which those of `scalars` are single numbers.

    Output k may lie over the inputs `over[k]`; it is written when these are read no more.  What
    only outputs need that are not `wanted` is left out.
    """
    op = Recorder(len(present))
    given = [Stand(op, i) if there else None for i, there in enumerate(present)]
    results = [value.number for value in formula(op, *given, **dict(options))]
    outputs = {k: number for k, number in enumerate(results) if wanted[k]}
    code = _needed(op.instructions, outputs.values())
    single = set(scalars)
    numbers, elements = [], []
    for each in code:
        if all(r in single for r in each.reads):
            single.add(each.result)
            numbers.append(each)
        else:
            elements.append(each)
    places, copies, rooms = _placed(elements, outputs, over)
    return Tape(tuple(numbers), tuple(elements), places, copies, rooms)


def _needed(code: Sequence[Instruction], outputs: Any) -> list[Instruction]:
    needed, kept = set(outputs), []
    for each in reversed(code):
        if each.result in needed:
            needed.update(each.reads)
            kept.append(each)
    return kept[::-1]


def _placed(
    code: Sequence[Instruction], outputs: Mapping[int, int], over: Sequence[Sequence[int]]
) -> tuple[dict[int, tuple[str, int]], tuple[tuple[int, int], ...], int]:
    """Where each result goes: right into an output that nothing later is lost by, else a room."""
    last = {r: i for i, each in enumerate(code) for r in each.reads}
    made = {each.result: i for i, each in enumerate(code)}
    places: dict[int, tuple[str, int]] = {}
    copies = []
    for k, number in outputs.items():
        late = all(last.get(i, -1) <= made.get(number, -1) for i in over[k])
        if number in made and number not in places and late:
            places[number] = ("out", k)
        else:
            copies.append((k, number))
            last[number] = len(code)
    free: list[int] = []
    rooms = 0
    for i, each in enumerate(code):
        dying = (v for v in dict.fromkeys(each.reads) if v in places and last[v] == i)
        free += [places[v][1] for v in dying if places[v][0] == "room"]
        if each.result not in places:
            if not free:
                free.append(rooms)
                rooms += 1
            places[each.result] = ("room", free.pop())
    return places, tuple(copies), rooms


def play(
    xp: Any,
    tape: Tape,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    rooms: Sequence[Any],
    numbers: Mapping[int, Any],
) -> None:
    """Run the element instructions of a tape on one block."""
    values: dict[int, Any] = {**dict(enumerate(inputs)), **numbers}
    for each in tape.elements:
        kind, k = tape.places[each.result]
        target = outputs[k] if kind == "out" else rooms[k]
        operands = [values[int(v)] if kind == "value" else v for kind, v in each.operands]
        getattr(xp, each.function)(*operands, out=target)
        values[each.result] = target
    for k, number in tape.copies:
        xp.copyto(outputs[k], values[number])


def scalars(xp: Any, tape: Tape, inputs: Sequence[Any]) -> dict[int, Any]:
    """What the instructions of single numbers give, by value."""
    values: dict[int, Any] = dict(enumerate(inputs))
    found = {}
    for each in tape.numbers:
        operands = [values[int(v)] if kind == "value" else v for kind, v in each.operands]
        found[each.result] = values[each.result] = getattr(xp, each.function)(*operands)
    return found

"""Places of the results of a recorded formula: outputs, or temporaries that take turns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Operand = int | float  # the number of a value, or a constant
Place = tuple[str, int]  # in ("out", k), ("room", k), or ("mask", k)
LOGIC = frozenset({
    "And", "Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual", "Not", "Or",
    "Copied",
})  # fmt: skip
SELECTIONS = {"Keep": 1, "Drop": 1, "Choose": 2}  # and the temporaries that each takes


@dataclass(frozen=True)
class Instruction:
    """`result = function(operands)`: numbers of values, or constants."""

    function: str
    operands: tuple[tuple[str, Operand], ...]  # ("value", number) or ("constant", number)
    result: int

    @property
    def reads(self) -> list[int]:
        """The values read."""
        return [int(number) for kind, number in self.operands if kind == "value"]


class Placing:
    """Place of each result: an output, if nothing later is lost by it, else a temporary."""

    def __init__(
        self, code: Sequence[Instruction], outputs: Mapping[int, int],
        over: Sequence[Sequence[int]], for_erf: int,
    ) -> None:  # fmt: skip
        self.places: dict[int, Place] = {}
        self.spare: dict[int, Sequence[int]] = {}
        self.copies: list[tuple[int, int]] = []
        self.count = {"room": 0, "mask": 0}
        self._free: dict[str, list[int]] = {"room": [], "mask": []}
        self._last = {r: i for i, each in enumerate(code) for r in each.reads}
        self._ends: dict[int, int] = {}  # by output the instruction that makes it
        self._chosen = {r for each in code if each.function in SELECTIONS for r in each.reads}
        self._read = {k: max((self._last.get(i, -1) for i in over[k]), default=-1) for k in outputs}
        made = {each.result: i for i, each in enumerate(code)}
        for k, number in outputs.items():
            i = made.get(number, -1)
            if i >= 0 and number not in self.places and not self._is_lost(code[i], k, i):
                self.places[number] = ("out", k)
                self._ends[k] = i
            else:
                self.copies.append((k, number))
                self._last[number] = len(code)
        temporaries = {**SELECTIONS, "Erf": for_erf}
        for i, each in enumerate(code):
            self._place(i, each, temporaries.get(each.function, 0))

    def _is_lost(self, each: Instruction, k: int, i: int) -> bool:
        """Whether something is read after instruction i that its result would lie over there."""
        return self._read[k] > (i - 1 if each.function == "Erf" else i)

    def _place(self, i: int, each: Instruction, temporaries: int) -> None:
        spare = [self._take("room") for _ in range(temporaries)]
        self.spare[each.result] = spare
        dying = [self.places[v] for v in dict.fromkeys(each.reads)
                 if v in self.places and self._last[v] == i]  # fmt: skip
        if each.function != "Erf":  # which reads its operand again when it has written
            self._give(dying)
        if each.result not in self.places:
            kind = "mask" if each.function in LOGIC else "room"
            out = next((k for k in self._ends if kind == "room" and self._is_free(each, k, i)), -1)
            self.places[each.result] = ("out", out) if out >= 0 else (kind, self._take(kind))
        if each.function == "Erf":
            self._give(dying)
        self._give([("room", k) for k in spare])

    def _is_free(self, each: Instruction, k: int, i: int) -> bool:
        """Whether a result may lie where output k will be.

        Operands of a selection may not: kernels took 5 to 7 % longer with it there.
        """
        later = [v for v, place in self.places.items()
                 if place == ("out", k) and self._last.get(v, -1) > i]  # fmt: skip
        within = i < self._ends[k] >= self._last[each.result]
        return (
            each.result not in self._chosen
            and within
            and not self._is_lost(each, k, i)
            and not later
        )

    def _take(self, kind: str) -> int:
        if not self._free[kind]:
            self.count[kind] += 1
            return self.count[kind] - 1
        return self._free[kind].pop()

    def _give(self, places: Iterable[Place]) -> None:
        for kind, k in places:
            if kind != "out":
                self._free[kind].append(k)

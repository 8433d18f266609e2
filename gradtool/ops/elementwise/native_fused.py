"""Groups of elementwise steps as one program of the library (`program/fusion.py`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.native import elementwise as library
from gradtool.ops.elementwise.native import BOOL, lies_as
from gradtool.ops.native import Bound, native, room
from gradtool.ops.shared.types import Array, Arrays, Specs

GROUP = "ai.gradtool::Elementwise"
MOST = 24  # operations: with as many leaves and numbers each, registers are enough
Symbol = tuple[str, float]  # a `leaf`, a `number`, or what an operation `made`, by number
Operation = tuple[Any, ...]  # a step of the library, and its operands


def _code(operations: Sequence[Operation], leaves: int) -> tuple[list[library.Step], list[float]]:
    """The program, and the numbers that are inputs after the leaves."""
    read = [n for _, *operands in operations for kind, n in operands if kind == "number"]
    numbers = list(dict.fromkeys(read))
    result = leaves + len(numbers)
    fixed = {("leaf", i): i for i in range(leaves)}
    fixed |= {("number", n): leaves + i for i, n in enumerate(numbers)}
    last = {s: i for i, (_, *operands) in enumerate(operations) for s in operands}
    registers: dict[Symbol, int] = {}
    free: list[int] = []
    count, code = result + 1, []
    for i, (name, *operands) in enumerate(operations):
        taken = [fixed[s] if s in fixed else registers[s] for s in operands]
        done = {s for s in operands if s not in fixed and last[s] == i}
        free = sorted({*free, *(registers.pop(s) for s in done)})
        if i == len(operations) - 1:
            to = result
        elif free:
            to = free.pop(0)
        else:
            to, count = count, count + 1
        registers["made", i] = to
        code.append((name, to, *taken))
    return code, numbers


def _fits(*_specs: Spec, out: Specs, operations: Sequence[Operation]) -> bool:
    return True


def _work(*specs: Spec, out: Specs, operations: Sequence[Operation]) -> list[Spec]:
    code, numbers = _code(operations, len(specs))
    held = sum(not lies_as(s, out[0]) for s in specs) + len(numbers) + (out[0].dtype == BOOL)
    inputs = len(specs) + len(numbers)
    return room(library.work(code, inputs, held, math.prod(out[0].shape)))


def _method(*_specs: Spec, out: Specs, operations: Sequence[Operation]) -> str:
    return " ".join(_names(operations))


def _names(operations: Sequence[Operation]) -> Iterator[str]:
    yield from (name for name, *_ in operations)


@native(GROUP, fits=_fits, work=_work, layouts="alike", strided=True, method=_method)
def group(*inputs: Array, out: Arrays, work: Arrays, operations: Sequence[Operation]) -> Bound:
    """Each operation in its turn, on a block that stays in cache."""
    code, numbers = _code(operations, len(inputs))
    given = [*inputs, *(np.array(number, np.float32) for number in numbers)]
    spare = work[0] if work else np.empty(0, np.float32)
    return library.run(code, given, [out[0]], spare)

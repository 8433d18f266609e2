"""Formulas of tensors of one shape as lists of instructions, run one block of elements at a time.

A formula is recorded once with stand-ins for its values, then each block runs all of it: arrays go
through the cache once, whatever the number of operations, and intermediate results take so many
blocks as are alive together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import count
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import numpy as np

from gradtool.ops import formulas
from gradtool.ops.formulas import OPERATIONS
from gradtool.ops.shared import select
from gradtool.ops.shared.placing import SELECTIONS, Instruction, Place, Placing
from gradtool.ops.shared.types import Array

# erf x = tanh(x · P(x²)) for |x| ≤ 4, fitted to a relative error of 1e-7.
P = (
    1.1283792744048773,
    0.10276905322195341,
    -0.00019182146713891065,
    -0.0006197954853117263,
    8.764235236752617e-05,
    -5.669437672989785e-06,
    1.419145542771105e-07,
)


def erf_into(xp: Any, x: Array, scale: float, out: Array, t: Array = None) -> None:
    """`out = erf(scale · x)`, with a temporary `t` for the polynomial: float32 on the host.

    Beyond 4 the factor of x is that at 4, and tanh is 1 there.
    """
    if xp is not np or x.dtype.itemsize > 4:
        _library(xp)(xp.multiply(x, scale, out=out), out=out)
        return
    np.multiply(x, x, out=t)
    t.clip(0, 16 / scale**2, out=t)
    np.multiply(t, P[-1] * scale ** (2 * len(P) - 1), out=out)
    for power in range(len(P) - 2, 0, -1):
        np.add(out, P[power] * scale ** (2 * power + 1), out=out)
        np.multiply(out, t, out=out)
    np.add(out, P[0] * scale, out=out)
    np.tanh(np.multiply(out, x, out=out), out=out)


def _library(xp: Any) -> Any:
    """The library's error function, imported when first needed: that takes a while."""
    if xp is np:
        from scipy.special import erf
    else:
        from cupyx.scipy.special import erf

    return erf


UFUNCS = MappingProxyType(
    {name: operation.ufunc for name, operation in OPERATIONS.items()}
    | {"Div": "divide", "Max": "maximum", "Min": "minimum", "Expm1": "expm1", "Log1p": "log1p"}
)
COUNTS = {**dict.fromkeys((*SELECTIONS, "Copied", "And", "Or", "Not"), 0), "Clip": 2}


def _arithmetic(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward(self: Stand, other: Any) -> Any:
        return getattr(self.tape, name)(self, other)

    def backward(self: Stand, other: Any) -> Any:
        return getattr(self.tape, name)(other, self)

    return forward, backward


@dataclass(frozen=True)
class Stand:
    """Placeholder of a value while a formula is recorded; `number` is its place on the tape."""

    tape: Any
    number: int

    __add__, __radd__ = _arithmetic("Add")
    __sub__, __rsub__ = _arithmetic("Sub")
    __mul__, __rmul__ = _arithmetic("Mul")
    __truediv__, __rtruediv__ = _arithmetic("Div")

    def __neg__(self) -> Any:
        return self.tape.Neg(self)


class Recorder:
    """Recorder of the operations of a formula, its `op`.

    Other operators are recorded by their own formulas.
    """

    def __init__(self, inputs: int) -> None:
        self.count = inputs
        self.instructions: list[Instruction] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in UFUNCS:
            return partial(self.emit, name)
        found = formulas.find(name)
        if found is None:
            raise AttributeError(name)
        return partial(found.formula, self)

    def emit(self, function: str, *operands: Any) -> Stand:
        """Note one instruction; return a placeholder of its result."""
        read = tuple(
            ("value", o.number) if isinstance(o, Stand) else ("constant", o) for o in operands
        )
        self.instructions.append(Instruction(function, read, self.count))
        self.count += 1
        return Stand(self, self.count - 1)

    def Clip(self, x: Stand, low: float, high: float) -> Stand:
        """`min(max(x, low), high)`; numpy's clip passes once over its operand."""
        return self.emit("Clip", x, low, high)

    def Erf(self, x: Stand) -> Stand:
        """The error function; a constant factor of its operand goes into its polynomial."""
        for each in self.instructions:
            if each.result == x.number and each.function == "Mul":
                (_, value), (kind, factor) = each.operands
                if kind == "constant":
                    return self.emit("Erf", Stand(self, int(value)), factor)
        return self.emit("Erf", x, 1.0)

    def Where(self, mask: Stand, a: Any, b: Any) -> Stand:
        """Selection by bits (`gradtool.ops.shared.select`)."""
        if not isinstance(a, Stand) and a == 0:
            return self.emit("Drop", mask, b)
        if not isinstance(b, Stand) and b == 0:
            return self.emit("Keep", mask, a)
        return self.emit("Choose", mask, a, b)


@dataclass(frozen=True, eq=False)
class Tape:
    """A recorded formula.

    `numbers` are instructions of scalars alone, which run once; `elements` those of every block.
    `places` says by value where it is written: in output k, or in temporary k, of numbers or of
    booleans; `spare` has the temporaries of an instruction itself.  `copies` are pairs of an output
    and the value that is copied there at the end of a block, `rooms` and `masks` the numbers of
    temporaries.
    """

    inputs: int
    outputs: int
    numbers: tuple[Instruction, ...]
    elements: tuple[Instruction, ...]
    places: Mapping[int, Place]
    spare: Mapping[int, Sequence[int]]
    copies: tuple[tuple[int, int], ...]
    rooms: int
    masks: int

    @cached_property
    def constants(self) -> tuple[float, ...]:
        """Constant operands of the instructions, each as often as it is read."""
        return tuple(n for each in self.elements for kind, n in each.operands if kind != "value")

    @property
    def counts(self) -> int:
        """The operations of an element: one per instruction, none for selection and logic."""
        return sum(
            1 + (each.operands[1][1] != 1) if each.function == "Erf"
            else COUNTS.get(each.function, 1)
            for each in self.elements
        )  # fmt: skip

    @cached_property
    def code(self) -> list[tuple[str, itemgetter[Any]]]:
        """By instruction its function, and the getter of its operands, place and temporaries.

        They are taken of the inputs, outputs, temporaries of numbers, of booleans, the results of
        `numbers`, and the constants, in this order.
        """
        first = {"out": self.inputs}
        first["room"] = first["out"] + self.outputs
        first["mask"] = first["room"] + self.rooms
        single = first["mask"] + self.masks
        slots = {value: first[kind] + k for value, (kind, k) in self.places.items()}
        slots |= {value: value for value in range(self.inputs)}
        slots |= {each.result: single + i for i, each in enumerate(self.numbers)}
        constant = count(single + len(self.numbers))
        found = []
        for each in self.elements:
            taken = [slots[int(n)] if kind == "value" else next(constant)
                     for kind, n in each.operands]  # fmt: skip
            taken += [slots[each.result], *(first["room"] + k for k in self.spare[each.result])]
            found.append((each.function, itemgetter(*taken)))
        copies = (("Copied", itemgetter(slots[n], first["out"] + k)) for k, n in self.copies)
        return [*found, *copies]


@cache
def record(
    formula: Callable[..., Any], present: tuple[bool, ...], scalars: frozenset[int],
    over: tuple[tuple[int, ...], ...], wanted: tuple[bool, ...],
    options: tuple[tuple[str, Any], ...], *, double: bool = False,
) -> Tape:  # fmt: skip
    """Record a formula; its inputs in `scalars` are single numbers.

    Output k may lie over the inputs `over[k]`; it is written when these are read no more.  Steps
    of no use to a `wanted` output are left out.  In `double` precision the error function is the
    library's, without a temporary.
    """
    op = Recorder(len(present))
    given = [Stand(op, i) if there else None for i, there in enumerate(present)]
    made = formula(op, *given, **dict(options))
    results = [value.number for value in (made if isinstance(made, tuple) else (made,))]
    outputs = {k: number for k, number in enumerate(results) if wanted[k]}
    code = _with_own_masks(_needed(op.instructions, outputs.values()), len(present), op)
    single = set(scalars)
    numbers, elements = [], []
    for each in code:
        if all(r in single for r in each.reads):
            single.add(each.result)
            numbers.append(each)
        else:
            elements.append(each)
    placing = Placing(elements, outputs, over, 0 if double else 1)
    return Tape(
        len(present), len(wanted), tuple(numbers), tuple(elements), placing.places, placing.spare,
        tuple(placing.copies), placing.count["room"], placing.count["mask"],
    )  # fmt: skip


def _needed(code: Sequence[Instruction], outputs: Iterable[int]) -> list[Instruction]:
    needed, kept = set(outputs), []
    for each in reversed(code):
        if each.result in needed:
            needed.update(each.reads)
            kept.append(each)
    return kept[::-1]


def _with_own_masks(code: list[Instruction], inputs: int, op: Recorder) -> list[Instruction]:
    """Selections use their mask up: an input, or one read again, is copied before."""
    reads = Counter(r for each in code for r in each.reads)
    found = []
    for each in code:
        mask = each.reads[0]
        if each.function in SELECTIONS and (mask < inputs or reads[mask] > 1):
            copied = Instruction("Copied", each.operands[:1], op.count)
            op.count += 1
            own = (("value", copied.result), *each.operands[1:])
            found += [copied, Instruction(each.function, own, each.result)]
        else:
            found.append(each)
    return found


def _choose(xp: Any, mask: Array, a: Any, b: Any, out: Array, t: Array, s: Array) -> None:
    a, b = (n if hasattr(n, "dtype") else xp.asarray(n, out.dtype) for n in (a, b))
    select.choose(xp, mask, a, b, out, t, s)


OTHERS: Mapping[str, Callable[..., object]] = MappingProxyType({
    "Choose": _choose, "Drop": select.drop, "Erf": erf_into, "Keep": select.keep,
    "Clip": lambda _, x, low, high, out: x.clip(low, high, out=out),
    "Copied": lambda xp, x, out: xp.copyto(out, x),
    "Max": lambda xp, a, b, out: xp.maximum(a, b, out=out),  # which take no place by position
    "Min": lambda xp, a, b, out: xp.minimum(a, b, out=out),
})  # fmt: skip


@cache
def player(xp: Any, tape: Tape) -> Callable[..., None]:
    """Function running the element instructions of a tape on one block.

    It takes the inputs, outputs, temporaries, and the results of `scalars`.
    """
    steps = [
        (partial(OTHERS[name], xp) if name in OTHERS else getattr(xp, UFUNCS[name]), taken)
        for name, taken in tape.code
    ]
    constants = tape.constants

    def play(*arrays: Any) -> None:
        values = arrays + constants
        for function, taken in steps:
            function(*taken(values))

    return play


def scalars(xp: Any, tape: Tape, inputs: Sequence[Any]) -> list[Any]:
    """Results of the instructions of single numbers."""
    values: dict[int, Any] = dict(enumerate(inputs))
    for each in tape.numbers:
        operands = [values[int(v)] if kind == "value" else v for kind, v in each.operands]
        values[each.result] = getattr(xp, UFUNCS[each.function])(*operands)
    return [values[each.result] for each in tape.numbers]

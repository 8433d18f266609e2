"""Elementwise operators as programs of the library's steps, on arrays of any layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, reduce
from types import MappingProxyType
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.native import elementwise as library
from gradtool.native.strided import AXES
from gradtool.ops import formulas
from gradtool.ops.formulas import FORMULAS, OPERATIONS
from gradtool.ops.native import Bound, native, room
from gradtool.ops.shared.image_layouts import Laid
from gradtool.ops.shared.tape import Stand
from gradtool.ops.shared.types import Array, Arrays, DType, Specs

FLOAT, BOOL = np.dtype(np.float32), np.dtype(bool)
BROADCASTS = 7  # the opset from which on operators broadcast
MASKED = {"Where": (0,), "ai.gradtool::MaskGrad": (0,)}  # inputs that are booleans
MASKS = ("Greater", "Less", "Equal")  # operators whose result is
STEPS = MappingProxyType(
    {name: operation.step for name, operation in OPERATIONS.items() if operation.step}
    | {"Div": "div", "Pow": "pow", "Max": "max", "Min": "min", "Relu": "relu",
       "Reciprocal": "inverse", "Expm1": "fall"}
)  # fmt: skip

Symbol = tuple[str, float]  # a `leaf`, a `number`, or what an operation `made`, by number
Operation = tuple[Any, ...]  # a step of the library, and its operands


class _Program:
    """Recorder of library steps, the `op` of a formula."""

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.operations: list[Operation] = []
        self._inverted: set[int] = set()  # masks that stand for their opposite

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in STEPS:
            return partial(self.emit, STEPS[name])
        found = formulas.find(name)
        if found is None:
            raise AttributeError(name)
        if isinstance(found.native, str) and found.native:
            return partial(self.emit, found.native)
        return partial(found.native or found.formula, self)

    def emit(self, step: str, *operands: Any) -> Stand:
        """Note one step; return a placeholder of its result."""
        self.operations.append((step, *map(self._symbol, operands)))
        return Stand(self, self.inputs + len(self.operations) - 1)

    def _symbol(self, operand: Any) -> Symbol:
        if not isinstance(operand, Stand):
            return "number", float(operand)
        made = operand.number - self.inputs
        return ("leaf", operand.number) if made < 0 else ("made", made)

    def Less(self, a: Any, b: Any) -> Stand:
        """`b > a`."""
        return self.emit("greater", b, a)

    def LessOrEqual(self, a: Any, b: Any) -> Stand:
        """The opposite of `a > b`, of numbers other than NaN."""
        return self._opposite(self.emit("greater", a, b))

    def GreaterOrEqual(self, a: Any, b: Any) -> Stand:
        """The opposite of `b > a`, of numbers other than NaN."""
        return self._opposite(self.emit("greater", b, a))

    def _opposite(self, mask: Stand) -> Stand:
        self._inverted.add(mask.number)
        return mask

    def Or(self, a: Stand, b: Stand) -> Stand:
        """Of opposites: the opposite of both."""
        return self._opposite(self.emit("both", a, b))

    def Not(self, mask: Stand) -> Stand:
        """True where the mask is not."""
        return self.emit("not", mask)

    def Clip(self, x: Stand, low: Any = None, high: Any = None) -> Stand:
        """`min(max(x, low), high)`."""
        if low is None and high is None:
            return self.emit("max", x, x)
        above = x if low is None else self.emit("max", x, low)
        return above if high is None else self.emit("min", above, high)

    def Where(self, mask: Stand, a: Any, b: Any) -> Stand:
        """One where the mask is true, else the other."""
        if mask.number in self._inverted:
            a, b = b, a
        if not isinstance(a, Stand) and a == 0:
            return self.emit("but", mask, b)
        if not isinstance(b, Stand) and b == 0:
            return self.emit("both", mask, a)
        return self.emit("either", self.emit("both", mask, a), self.emit("but", mask, b))


def program_of(
    formula: str | Callable[..., Any], inputs: Sequence[Any], **given: Any
) -> list[Operation]:
    """The operations of a formula, or the one of a step, of the inputs that are not None."""
    numbers = iter(range(len(inputs)))
    op = _Program(sum(x is not None for x in inputs))
    operands = [None if x is None else Stand(op, next(numbers)) for x in inputs]
    if isinstance(formula, str):
        op.emit(formula, *operands)
    else:
        formula(op, *operands, **given)
    return op.operations


def code_of(operations: Sequence[Operation], leaves: int) -> tuple[list[library.Step], list[float]]:
    """The code of `_code`."""
    return _code(tuple(operations), leaves)


@cache
def _code(operations: tuple[Operation, ...], leaves: int) -> tuple[list[library.Step], list[float]]:
    """The program, and the numbers passed as inputs after the leaves.

    Only the last operation gives the result: so that may be any of the inputs.
    """
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


def work_of(operations: Sequence[Operation], inputs: Specs, y: Spec) -> list[Spec]:
    """The workspace of a program, whose inputs may lie otherwise than its result."""
    code, numbers = code_of(operations, len(inputs))
    held = sum(not lies_as(s, y) for s in inputs) + len(numbers) + (y.dtype == BOOL)
    return room(library.work(code, len(inputs) + len(numbers), held, math.prod(y.shape)))


def bind(operations: Sequence[Operation], inputs: Arrays, out: Arrays, work: Arrays) -> Bound:
    """Bound call of a program, each operation in its turn, on blocks that stay in cache."""
    code, numbers = code_of(operations, len(inputs))
    given = [*inputs, *(np.array(number, np.float32) for number in numbers)]
    return library.run(code, given, [out[0]], work[0] if work else np.empty(0, np.float32))


def lies_as(x: Spec, y: Spec) -> bool:
    """Whether floats have the layout of the result."""
    alike = type(x) is type(y) and type(y) in (Spec, Laid)
    return x.dtype == FLOAT and alike and x.shape == y.shape


Programs = Callable[..., list[Operation]]  # by the inputs of an operator, and its attributes
PROGRAMS: dict[str, Programs] = {}


def _fits(op: str, *specs: Spec | None, out: Sequence[Spec | None]) -> bool:
    wanted = [BOOL if slot in MASKED.get(op, ()) else FLOAT for slot in range(len(specs))]
    kinds = all(s is None or s.dtype == kind for s, kind in zip(specs, wanted, strict=True))
    return kinds and _makes(out[0], BOOL if op in MASKS else FLOAT)


def _fits_cast(_: str, x: Spec, *, out: Sequence[Spec | None], **__: Any) -> bool:
    return x.dtype in (FLOAT, BOOL) and _makes(out[0], BOOL if x.dtype == FLOAT else FLOAT)


def _makes(y: Spec | None, dtype: DType) -> bool:
    return y is not None and 0 not in y.shape and len(y.shape) <= AXES and y.dtype == dtype


def _register(op: str, of: Programs, fits: Callable[..., bool] = _fits) -> None:
    def work(*specs: Spec | None, out: Specs, **given: Any) -> list[Spec]:
        there = [spec for spec in specs if spec is not None]
        return work_of(of(*specs, **given), there, out[0])

    def run(*inputs: Array | None, out: Arrays, work: Arrays, **given: Any) -> Bound:
        """Bind the program of the operator."""
        return bind(of(*inputs, **given), [x for x in inputs if x is not None], out, work)

    PROGRAMS[op] = of
    since = BROADCASTS if op in ("Add", "Sub", "Mul", "Div", "Pow") else 1
    native(op, fits=partial(fits, op), work=work, since=since, layouts="alike", strided=True)(run)


def _of(formula: str | Callable[..., Any]) -> Programs:
    @cache
    def of(present: tuple[bool | None, ...], given: tuple[tuple[str, Any], ...]) -> list[Operation]:
        return program_of(formula, present, **dict(given))

    return lambda *inputs, **given: of(
        tuple(None if x is None else True for x in inputs), tuple(given.items())
    )


def _folded(step: str) -> Programs:
    def fold(op: Any, first: Any, *rest: Any) -> Any:
        return reduce(partial(op.emit, step), rest, first) if rest else op.Clip(first)

    return _of(fold)


def _pow_grad(op: Any, x: Any, exponent: Any, dy: Any) -> Any:
    """`dx = dy · e · x^(e - 1)`, and 0 where e is 0."""
    power = op.Where(op.Equal(exponent, 0), 0, exponent - 1)
    return op.Pow(x, power) * exponent * dy


def _cast(x: Spec | Array, **_: Any) -> list[Operation]:
    if x.dtype == FLOAT:
        return program_of(lambda op, x: op.Not(op.Equal(x, 0)), [x])
    return program_of(lambda op, x: op.Where(x, 1, 0), [x])


OTHERS: Mapping[str, str | Callable[..., Any]] = MappingProxyType({
    **{name: step for name, step in STEPS.items() if name not in ("Expm1", "Max", "Min")},
    **{name: lambda op, *inputs, name=name: getattr(op, name)(*inputs)
       for name in ("Less", "Clip", "Where")},
    "ai.gradtool::PowGrad": _pow_grad,
})  # fmt: skip
for _op, _formula in OTHERS.items():
    _register(_op, _of(_formula))
for _op, _step in {"Sum": "add", "Max": "max", "Min": "min"}.items():
    _register(_op, _folded(_step))
for _declared in FORMULAS.entries():
    if "native" not in _declared.apart:
        _register(_declared.name, _of(_declared.native or _declared.formula))
_register("Cast", _cast, _fits_cast)


GROUP = "ai.gradtool::Elementwise"
MOST = 24  # operations: with as many leaves and numbers each, registers are enough


def _work(*specs: Spec, out: Specs, operations: Sequence[Operation]) -> list[Spec]:
    return work_of(operations, specs, out[0])


def _group_method(*, operations: Sequence[Operation]) -> str:
    return " ".join(name for name, *_ in operations)


@native(GROUP, fits=lambda: True, work=_work, layouts="alike", strided=True, method=_group_method)
def group(*inputs: Array, out: Arrays, work: Arrays, operations: Sequence[Operation]) -> Bound:
    """Each operation in its turn, on a block that stays in cache."""
    return bind(operations, inputs, out, work)

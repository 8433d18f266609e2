"""Elements of small vectors of integers: sizes on their way to an Expand.

TorchScript writes `x.expand(b, -1)` as a comparison of all sizes with -1 and a choice, `squeeze` as
an If on a size.  Sizes are never negative, which decides most of these comparisons; an undecided
element is a number of its own, of which nothing is known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from gradtool.graph.predicates import is_integer
from gradtool.graph.renamed import UNSURE, whatever_named

Dim = Any  # int | ir.SymbolicDim: the library has no types

MOST = 64  # elements that are reckoned with


def propagate(ctx: Any, node: ir.Node) -> None:
    """Note the elements of a node's result if they follow from its inputs."""
    rule = RULES.get(node.op_type)
    y = node.outputs[0]
    if rule is None or y.shape is None or len(y.shape) > 1 or y.const_value is not None:
        return
    if y.dtype != ir.DataType.BOOL and not is_integer(y):
        return
    inputs = [_elements(ctx, value) for value in node.inputs]
    known = [each for each in inputs if each is not None]
    if len(known) < len(inputs) or not known or not all(known):
        return
    count = max(map(len, known))
    if count > MOST or any(len(each) not in (1, count) for each in known):
        return
    spread = (each * count if len(each) == 1 else each for each in known)
    found = [rule(*each) for each in zip(*spread, strict=True)]
    made = [_unsure(ctx) if each is None else each for each in found]
    ctx.set_symbolic_value(y, made)


def reduced(ctx: Any, node: ir.Node) -> None:
    """Note the reduction of all elements of a vector."""
    x, y, fold = node.inputs[0], node.outputs[0], _FOLDS.get(node.op_type)
    known = None if fold is None else _elements(ctx, x)
    if fold is None or not known or x is None or x.shape is None or len(x.shape) != 1:
        return
    if y.shape is None or y.const_value is not None or len(known) > MOST or not is_integer(y):
        return
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    if axes is None and node.attributes.get_int("noop_with_empty_axes", default=False):
        return
    total = known[0]
    for each in known[1:]:
        total = fold(total, each)
        if total is None:
            return
    ctx.set_symbolic_value(y, [total])


def is_nonnegative(number: Dim) -> bool:
    """Whether a number is known not to be below 0."""
    return _compare(number, 0, "is_nonnegative", "is_negative") == 1


def is_zero(number: Dim) -> bool:
    """Whether a number is known to be 0."""
    return _equal(number, 0) == 1


def _elements(ctx: Any, value: ir.Value | None) -> list[Dim] | None:
    """The elements of a scalar or vector, truth values as 0 and 1."""
    if value is None:
        return None
    found: list[Dim] | None = ctx.get_symbolic_value(value)
    tensor = ir.convenience.get_const_tensor(value) if found is None else None
    if tensor is None or value.dtype != ir.DataType.BOOL or len(tensor.shape) > 1:
        return found
    return [int(each) for each in tensor.numpy().reshape(-1).tolist()]


def _unsure(ctx: Any) -> ir.SymbolicDim:
    fresh = ctx.new_symbolic_dim()
    return ir.SymbolicDim(f"{UNSURE}{fresh.value}")


@functools.lru_cache(maxsize=4096)
def expression(number: Dim) -> Any:
    """A number in sympy, its symbols sizes that may be 0; None if any term may be below 0."""
    import sympy

    if isinstance(number, int):
        return sympy.Integer(number)
    found = None if number.value is None else number._expr  # noqa: SLF001 - as in sizing
    if found is None or any(str(s).startswith(UNSURE) for s in found.free_symbols):
        return None
    sizes = {s: sympy.Symbol(str(s), integer=True, nonnegative=True) for s in found.free_symbols}
    return found.subs(sizes)


@whatever_named
def _compare(a: Dim, b: Dim, holds: str, fails: str) -> int | None:
    """1 if the difference of two numbers has the property `holds`, 0 if it has the other one."""
    import sympy

    first, second = expression(a), expression(b)
    if first is None or second is None:
        return None
    difference = sympy.expand(first - second)
    if getattr(difference, holds):
        return 1
    opposite = getattr(difference, fails)
    if opposite is None and fails == "is_nonzero":
        opposite = difference.is_zero is False
    return 0 if opposite else None


def _equal(a: Dim, b: Dim) -> int | None:
    return _compare(a, b, "is_zero", "is_nonzero")


def _less(a: Dim, b: Dim) -> int | None:
    return _compare(a, b, "is_negative", "is_nonnegative")


def _not_more(a: Dim, b: Dim) -> int | None:
    return _compare(a, b, "is_nonpositive", "is_positive")


def _swapped(rule: Callable[[Dim, Dim], int | None]) -> Callable[[Dim, Dim], int | None]:
    return lambda a, b: rule(b, a)


def _truth(a: Dim) -> int | None:
    different = _equal(a, 0)
    return None if different is None else 1 - different


def _not(a: Dim) -> int | None:
    return 1 - a if isinstance(a, int) else None


def _and(a: Dim, b: Dim) -> int | None:
    if 0 in (a, b):
        return 0
    return 1 if (a, b) == (1, 1) else None


def _or(a: Dim, b: Dim) -> int | None:
    if 1 in (a, b):
        return 1
    return 0 if (a, b) == (0, 0) else None


def _where(condition: Dim, a: Dim, b: Dim) -> Dim:
    if isinstance(condition, int):
        return a if condition else b
    return a if a == b else None


def _quotient(a: Dim, b: Dim) -> Dim:
    """The quotient rounded towards zero, which is down for nonnegative numbers."""
    if isinstance(b, int) and b > 0 and is_nonnegative(a):
        return a // b
    return None


def _remainder(a: Dim, b: Dim) -> Dim:
    return a % b if isinstance(b, int) and b > 0 and is_nonnegative(a) else None


def _extreme(name: str) -> Callable[..., Dim]:
    def extreme(*numbers: Dim) -> Dim:
        import sympy

        if len(numbers) == 1 or all(isinstance(each, int) for each in numbers):
            return max(numbers) if name == "Max" else min(numbers)
        return _least(getattr(sympy, name), *numbers)

    return extreme


@whatever_named
def _least(formula: Callable[..., Any], *numbers: Dim) -> Dim:
    """A formula of numbers; None where sizes of 0 would make it another one.

    The library takes every symbol for a positive number, and simplifies its formulas by that.
    """
    told = [expression(each) for each in numbers]
    if any(each is None for each in told):
        return None
    owned = (n if isinstance(n, int) else n._expr for n in numbers)  # noqa: SLF001 - as in sizing
    found = formula(*owned)
    if str(found) != str(formula(*told)):
        return None
    return int(found) if found.is_Integer else ir.SymbolicDim(found)


def extent(size: Dim, start: Dim, end: Dim) -> Dim:
    """The length of `range(start, end)` on an axis, both nonnegative; None if unknown."""
    return _least(_counted, size, start, end)


def _counted(size: Any, start: Any, end: Any) -> Any:
    import sympy

    return sympy.Max(0, sympy.Min(sympy.expand(end - start), sympy.expand(size - start)))


RULES: dict[str, Callable[..., Dim]] = {
    "Equal": _equal,
    "Less": _less,
    "LessOrEqual": _not_more,
    "Greater": _swapped(_less),
    "GreaterOrEqual": _swapped(_not_more),
    "Cast": _truth,
    "Not": _not,
    "And": _and,
    "Or": _or,
    "Where": _where,
    "Div": _quotient,
    "Mod": _remainder,
    "Max": _extreme("Max"),
    "Min": _extreme("Min"),
}

_FOLDS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "ReduceProd": lambda a, b: a * b,
    "ReduceSum": lambda a, b: a + b,
    "ReduceMax": _extreme("Max"),
    "ReduceMin": _extreme("Min"),
}


def is_ones(value: ir.Value | None) -> Sequence[Dim] | None:
    """The sizes of a ConstantOfShape filled with another number than 0; None of other values."""
    maker = None if value is None else value.producer()
    if maker is None or maker.op_type != "ConstantOfShape" or value is None or value.shape is None:
        return None
    fill = maker.attributes.get("value")
    nonzero = fill is not None and bool(fill.as_tensor().numpy().all())
    return list(value.shape) if nonzero else None

"""Softmax, its logarithm and the logistic function, written in the operators that they consist of.

    softmax      e / Σ e,  e · (1 / Σ e),  exp of a log-softmax,      e = exp(s)
    log-softmax  s - log Σ e,  s - logsumexp(s),  log of a softmax,   s = x or x - max x
    sigmoid      1 / (1 + exp(-x)),  exp(x) / (1 + exp(x))

Casts and Identities may lie anywhere, layouts where there is one number for each row of classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

import onnx_ir as ir

from gradtool.graph.constants import integers

_SAME = ("Identity", "Cast", "CastLike")
_LAID_OUT = (*_SAME, "Reshape", "Expand", "Squeeze", "Unsqueeze", "Flatten", "Tile", "Clip")
_SMALL = 1e-3  # what is added to a sum of powers to keep it from zero


@dataclass(frozen=True)
class Piecewise:
    """A value that is the activation `kind` of `scores`; softmax runs along `axis`."""

    kind: str
    scores: ir.Value
    axis: int | None = None


def piecewise(value: ir.Value) -> Piecewise | None:
    """Kind of a value whose last operator is the last piece of such a function."""
    node = value.producer()
    if node is None or node.domain:
        return None
    finders = {
        "Div": (_softmax, _sigmoid), "Mul": (_softmax, _sigmoid), "Reciprocal": (_sigmoid,),
        "Exp": (_power,), "Sub": (_log_softmax,), "Log": (_logarithm,),
    }  # fmt: skip
    found = (find(node) for find in finders.get(node.op_type, ()))
    return next((each for each in found if each is not None), None)


def _softmax(node: ir.Node) -> Piecewise | None:
    for top, below in _quotients(node):
        found = _sum_of_powers(below)
        if found is not None and _made(top, "Exp") is found[0]:
            power, axis = found
            return Piecewise("Softmax", _shifted(power.inputs[0], axis), axis)
    return None


def _log_softmax(node: ir.Node) -> Piecewise | None:
    """`s - log Σ exp(s)`, or `x - (m + log Σ exp(x - m))`."""
    scores, less = _core(node.inputs[0]), _core(node.inputs[1], _LAID_OUT)
    if scores is None or less is None:
        return None
    for logs in (less, *_terms(less)):
        axis = _log_sum(_core(logs, _LAID_OUT), scores, whole=logs is less)
        if axis is not None:
            return Piecewise("LogSoftmax", _shifted(scores, axis), axis)
    return None


def _log_sum(logs: ir.Value | None, scores: ir.Value, *, whole: bool) -> int | None:
    """The axis along which `logs` is log Σ exp(scores); of scores less a maximum if not `whole`."""
    direct = _made(logs, "ReduceLogSumExp")
    if direct is not None:
        same = _core(direct.inputs[0]) is (scores if whole else None)
        return _one_axis(direct) if same else None
    log = _made(logs, "Log")
    found = _sum_of_powers(log.inputs[0]) if log else None
    if found is None:
        return None
    power, axis = found
    read = _core(power.inputs[0])
    return axis if (read if whole else _shifted(read, axis)) is scores else None


def _power(node: ir.Node) -> Piecewise | None:
    found = _piece(node.inputs[0])
    return Piecewise("Softmax", found.scores, found.axis) if _is(found, "LogSoftmax") else None


def _logarithm(node: ir.Node) -> Piecewise | None:
    found = _piece(node.inputs[0])
    return Piecewise("LogSoftmax", found.scores, found.axis) if _is(found, "Softmax") else None


def _piece(value: ir.Value | None) -> Piecewise | None:
    """The operand of the last piece: the operator itself, or its pieces."""
    core = _core(value)
    node = core.producer() if core is not None else None
    if core is None or node is None:
        return None
    if node.op_type in ("Softmax", "LogSoftmax") and node.inputs[0] is not None:
        axis = node.attributes.get_int("axis", -1) % max(_rank(core), 1)
        return Piecewise(node.op_type, node.inputs[0], axis)
    return piecewise(core)


def _is(found: Piecewise | None, kind: str) -> TypeGuard[Piecewise]:
    return found is not None and found.kind == kind


def _sigmoid(node: ir.Node) -> Piecewise | None:
    for top, below in _quotients(node):
        added = _plus_one(below)
        power = _made(added, "Exp")
        if power is None:
            continue
        if _core(top) is power.outputs[0]:
            return Piecewise("Sigmoid", _there(power.inputs[0]))
        if _number(top) == 1 and (negated := _negated(power.inputs[0])) is not None:
            return Piecewise("Sigmoid", negated)
    return None


# ------------------------------------------------------------------------------- pieces


def _quotients(node: ir.Node) -> Iterator[tuple[ir.Value | None, ir.Value | None]]:
    """Dividend and divisor of a node: a numerator of None is 1."""
    if node.op_type == "Div":
        yield node.inputs[0], node.inputs[1]
    elif node.op_type == "Reciprocal":
        yield None, node.inputs[0]
    else:
        for top, by in (node.inputs, reversed(node.inputs)):
            under = _made(by, "Reciprocal", "Div", "Pow", past=_LAID_OUT)
            if under is None:
                continue
            if under.op_type == "Reciprocal" or _number(under.inputs[-1]) == -1:
                yield top, under.inputs[0]
            elif under.op_type == "Div" and _number(under.inputs[0]) == 1:
                yield top, under.inputs[1]


def _sum_of_powers(value: ir.Value | None) -> tuple[ir.Node, int] | None:
    """The Exp and the axis that a value is the sum of and along, perhaps with a little added."""
    value = _core(value, _LAID_OUT)
    terms = _terms(value)
    for term in terms or (value,):
        total = _made(term, "ReduceSum", "ReduceL1", past=_LAID_OUT)
        power = _made(total.inputs[0], "Exp") if total else None
        axis = _one_axis(total) if total else None
        others = [_number(other) for other in terms if other is not term]
        if power and axis is not None and all(n is not None and abs(n) <= _SMALL for n in others):
            return power, axis
    return None


def _shifted(value: ir.Value | None, axis: int) -> ir.Value:
    """The x of `x - max x`, else the value: softmax along `axis` is the same of both."""
    value = _there(_core(value))
    node = value.producer()
    if node is None or node.op_type not in ("Sub", "Add"):
        return value
    least = node.inputs[1]
    if node.op_type == "Add" and (least := _negated(least)) is None:
        return value
    top, kept = _made(least, "ReduceMax", past=_LAID_OUT), _core(node.inputs[0])
    if top is None or kept is None or _core(top.inputs[0]) is not kept:
        return value
    axes = _axes(top)
    return kept if axes is None or not axes or axis in axes else value


def _negated(value: ir.Value | None) -> ir.Value | None:
    """The x of `-x`, `x · -1`, `x / -1` or `0 - x`."""
    node = _made(value, "Neg", "Mul", "Div", "Sub", past=_LAID_OUT)
    if node is None:
        return None
    if node.op_type == "Neg":
        return node.inputs[0]
    first, second = node.inputs
    if node.op_type == "Sub":
        return second if _number(first) == 0 else None
    if _number(second) == -1:
        return first
    return second if node.op_type == "Mul" and _number(first) == -1 else None


def _plus_one(value: ir.Value | None) -> ir.Value | None:
    """The x of `1 + x`."""
    for kept, other in ((a, b) for a in _terms(value) for b in _terms(value) if a is not b):
        if _number(other) == 1:
            return kept
    return None


def _terms(value: ir.Value | None) -> tuple[ir.Value | None, ...]:
    node = _made(value, "Add")
    return tuple(node.inputs) if node is not None else ()


def _made(
    value: ir.Value | None, *kinds: str, past: tuple[str, ...] = _SAME
) -> ir.Node | None:  # fmt: skip
    """The node that makes a value, behind casts and copies, if it is one of some kinds."""
    core = _core(value, past)
    node = core.producer() if core is not None else None
    return node if node is not None and not node.domain and node.op_type in kinds else None


def _core(value: ir.Value | None, past: tuple[str, ...] = _SAME) -> ir.Value | None:
    """The value that casts and copies begin with."""
    while value is not None:
        node = value.producer()
        if node is None or node.domain or node.op_type not in past:
            break
        value = node.inputs[0]
    return value


def _there(value: ir.Value | None) -> ir.Value:
    assert value is not None  # noqa: S101 - an operand that the operator requires
    return value


def _one_axis(node: ir.Node) -> int | None:
    axes = _axes(node)
    return axes[0] if axes is not None and len(axes) == 1 else None


def _axes(node: ir.Node) -> list[int] | None:
    """The axes of a reduction, none for all of them; None where they are not known."""
    rank = _rank(node.inputs[0])
    named = node.inputs[1] if len(node.inputs) > 1 else None
    axes = list(node.attributes.get_ints("axes", [])) if named is None else integers(named)
    if axes == [] and rank == 1:
        axes = [0]
    return None if axes is None else [axis % max(rank, 1) for axis in axes]


def _rank(value: ir.Value | None) -> int:
    return len(value.shape or ()) if value is not None else 0


def _number(value: ir.Value | None) -> float | None:
    """The one number that a constant holds; an absent numerator is 1."""
    if value is None:
        return 1.0
    tensor = ir.convenience.get_const_tensor(_there(_core(value, _LAID_OUT)))
    return float(tensor.numpy().item()) if tensor is not None and tensor.size == 1 else None

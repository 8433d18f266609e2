"""Limits of inference: possible shapes of arrays, from vectors that can name their axes.

Every inference rule is called through `guarded`, so that no file, no gradient and no size that is
given later makes a value of a negative size, of more axes than arrays have, or of more bytes than
any machine. An operator that reads one number for each axis is refused before its rule writes
out as many axes as a file declares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import onnx_ir as ir

from gradtool.errors import ModelError
from gradtool.graph.error_context import COMPLAINTS
from gradtool.graph.limits import DEFAULT, Limits
from gradtool.graph.names import label
from gradtool.graph.predicates import is_float
from gradtool.graph.summarized import is_long, summarized
from gradtool.shapes import contents

Rule = Callable[[Any, ir.Node], None]

# The input with one number for each axis of the result, or for some of them.
AXES_INPUT = {
    "Reshape": 1,
    "Expand": 1,
    "ConstantOfShape": 0,
    "Tile": 1,
    "Unsqueeze": 1,
    "Squeeze": 1,
    "MaxUnpool": 2,
    "CenterCropPad": 1,
    "AffineGrid": 1,
    "Col2Im": 1,
    "Slice": 1,
}
_STRING_BITS = 64  # of a reference
_LIMITS: ContextVar[Limits] = ContextVar("gradtool.limits", default=DEFAULT)


class ImpossibleShape(ModelError):
    """A node's output is no possible array, or beyond a limit."""


@contextmanager
def within(limits: Limits) -> Iterator[None]:
    """Hold inference to these limits, in place of the default ones."""
    token = _LIMITS.set(limits)
    try:
        yield
    finally:
        _LIMITS.reset(token)


def guarded(rule: Rule, context: Any, node: ir.Node) -> None:
    """Infer the outputs of a node by a rule.

    Raises:
        ModelError: naming the node and the limit that is exceeded.
    """
    limits = _LIMITS.get()
    problem = _too_many_axes(node, limits)
    if problem is not None:
        raise ImpossibleShape(f"{label(node)}: {problem}")
    try:
        rule(context, node)
    except COMPLAINTS as error:
        reason = " ".join(str(getattr(error, "message", error)).split())
        reason = reason or f"its shape cannot be inferred ({type(error).__name__})"
        raise ModelError(f"{label(node)}: {reason}") from error
    for value in node.outputs:
        _summarize(context, value)
        problem = broken(value, limits)
        if problem is not None:
            raise ImpossibleShape(f"{label(node)}: output {value.name!r} {problem}")


def _summarize(context: Any, value: ir.Value) -> None:
    """Call long sizes and elements of a value by their names."""
    if value.shape is not None and not value.shape.is_static():
        dims = [summarized(size) for size in value.shape]
        if dims != list(value.shape):
            value.shape = ir.Shape(dims)
    known = None if is_float(value) else context.get_symbolic_value(value)
    if known is not None and any(map(is_long, known)):
        named = [summarized(each, sure=contents.is_nonnegative(each)) for each in known]
        context.set_symbolic_value(value, named)


def broken(value: ir.Value, limits: Limits) -> str | None:
    """Why no array can have the shape of a value; None where one can, or it is not known."""
    if value.shape is None:
        return None
    if len(value.shape) > limits.rank:
        return f"has {len(value.shape)} axes; the limit is {limits.rank}"
    sizes = [size for size in value.shape if isinstance(size, int)]
    if sizes and min(sizes) < 0:
        return f"has shape {value.shape}; no size may be negative"
    total = least_bytes(sizes, value.dtype)
    if total > limits.value_bytes:
        return f"has shape {value.shape}, {total} bytes; the limit is {limits.value_bytes}"
    return None


def least_bytes(sizes: Iterable[int], dtype: ir.DataType | None) -> int:
    """Bytes of a value of these sizes, without those of zero, as an array's strides have it."""
    return math.prod(size for size in sizes if size) * _bits(dtype) // 8


def _bits(dtype: ir.DataType | None) -> int:
    if dtype is None or dtype == ir.DataType.UNDEFINED:
        return 8
    return _STRING_BITS if dtype == ir.DataType.STRING else dtype.bitwidth


def _too_many_axes(node: ir.Node, limits: Limits) -> str | None:
    slot = AXES_INPUT.get(node.op_type)
    value = node.inputs[slot] if slot is not None and slot < len(node.inputs) else None
    if node.domain or value is None or value.shape is None or len(value.shape) != 1:
        return None
    count = value.shape[0]
    if isinstance(count, int) and count > limits.rank:
        return (
            f"input {value.name!r} has a number for each of {count} axes; the limit is "
            f"{limits.rank}"
        )
    return None

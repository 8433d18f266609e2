"""Elementwise bodies a piece at a time, for runtimes that hold every step's result whole.

Beside the operands and the result they then hold the steps of one piece; stock onnxruntime's Where
alone takes two more arrays of its result's size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Dims, Tensor, ints, static

PIECE = 1 << 16  # elements: results of the steps of a piece stay in the second-level cache
LEAST = 4  # pieces, below which the body holds no less

B = TypeVar("B", bound=Callable[..., Any])


def by_piece(body: B) -> B:
    """A body computed piece by piece for a builder with `in_pieces`."""

    @wraps(body)
    def written(op: Builder, *inputs: Tensor, **options: Any) -> Any:
        if op.in_pieces:
            return _in_pieces(op, body, inputs, options)
        return body(op, *inputs, **options)

    return cast("B", written)


def _in_pieces(
    op: Builder, body: Callable[..., Any], inputs: Sequence[Tensor], options: dict[str, Any]
) -> Any:
    """An elementwise body by a Scan over pieces of the operands; numbers are read as they are.

    It is computed at once where a size is open, where an operand is repeated along an axis, or
    where there are few elements.
    """
    shape = inputs[0].shape
    whole = [v for v in inputs if len(v.shape)]
    count = pieces(shape) if all(list(v.shape) == list(shape) for v in whole) else 1
    if count < LEAST:
        return body(op, *inputs, **options)
    size = math.prod(ints(shape)) // count
    parts = {v: op.formal("part", [size], v.dtype) for v in whole}
    with op.body(list(parts.values())) as inner:
        inner.outputs.append(body(op, *(parts.get(v, v) for v in inputs), **options))
    stacks = [op.reshape(v, [count, size]) for v in parts]
    made = op.Scan(*stacks, body=inner, num_scan_inputs=len(stacks))
    return op.reshape(made, ints(shape))


def pieces(dims: Dims) -> int:
    """Number of pieces of one size, of at most `PIECE` elements; 1 if none fit."""
    if not static(dims):
        return 1
    total = math.prod(ints(dims))
    least = math.ceil(total / PIECE)
    return next((c for c in range(least, 4 * least) if c and total % c == 0), 1)

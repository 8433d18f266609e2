"""Elementwise bodies a piece at a time, for runtimes that hold every step's result whole."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gradtool.emit.builder import Builder
from gradtool.graph.known import Dims, Tensor, ints, static

PIECE = 1 << 16  # elements: results of the steps of a piece stay in the second-level cache
LEAST = 4  # pieces, below which the body holds no less


def in_pieces(op: Builder, body: Callable[..., Any], x: Tensor, dy: Tensor, **options: Any) -> Any:
    """`body(op, x, dy, **options)`, elementwise, by a Scan over pieces of both.

    A runtime then holds the operands, the result, and the steps of one piece.  Where a size is
    open, or there are few elements, the body is computed at once.
    """
    count = pieces(x.shape)
    if count < LEAST:
        return body(op, x, dy, **options)
    shape = ints(x.shape)
    size = math.prod(shape) // count
    parts = [op.formal("part", [size], v.dtype) for v in (x, dy)]
    with op.body(parts) as inner:
        inner.outputs.append(body(op, *parts, **options))
    stacks = [op.reshape(v, [count, size]) for v in (x, dy)]
    return op.reshape(op.Scan(*stacks, body=inner, num_scan_inputs=2), shape)


def pieces(dims: Dims) -> int:
    """How many pieces of one size there are, of at most `PIECE` elements; 1 if none fit."""
    if not static(dims):
        return 1
    total = math.prod(ints(dims))
    least = math.ceil(total / PIECE)
    return next((c for c in range(least, 4 * least) if c and total % c == 0), 1)

"""Gradients of embedding tables as rows: those read by Gather, summed where it read twice.

A table that only Gather reads, along its first axis, has a gradient that is zero but for the rows
that were read.  The update then takes those rows, and the gradient of the table is never made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import DOMAIN
from gradtool.graph.stages import stage
from gradtool.graph.typed import as_tensor
from gradtool.text.words import some

SUMS = ("Add", "Sum", "Identity")


@dataclass(frozen=True)
class Rows:
    """The gradient of a table by rows: that of row `rows[i]` is `sums[slots[i]]`.

    With n indices, `rows` and `slots` are int64 `[n]`, and `sums` is `[n, …]`, of which there are
    as many as different rows, in ascending order.
    """

    rows: Any
    slots: Any
    sums: Any


def is_table(x: ir.Value) -> bool:
    """Whether Gather reads a parameter."""
    return any(n.op_type == "Gather" for n in _readers(x))


def reads_of(gradient: ir.Value) -> list[ir.Node] | None:
    """The gradients of Gather along the first axis whose sum a gradient is; None if it is more."""
    node = gradient.producer()
    if node is None:
        return None
    if node.domain == DOMAIN and node.op_type == "GatherGrad":
        return None if node.attributes.get_int("axis", 0) else [node]
    if node.domain or node.op_type not in SUMS:
        return None
    terms = [reads_of(v) if v is not None else None for v in node.inputs]
    return None if None in terms else [read for term in terms for read in term or ()]


def why_whole(x: ir.Value, gradient: ir.Value) -> str | None:
    """Why the gradient of a table is more than rows; None if it is not."""
    if reads_of(gradient) is not None:
        return None
    others = dict.fromkeys(n.op_type for n in _readers(x) if n.op_type not in ("Gather", "Shape"))
    if others:
        return f"{some(list(others))} reads it as well"
    return "its gradient is more than rows along the first axis"


def by_rows(op: Builder, x: ir.Value, gradient: ir.Value) -> Rows:
    """The gradient of a table as rows, of all its reads together."""
    reads = reads_of(gradient)
    assert reads and x.shape is not None  # noqa: S101, PT018 - asked by `why_whole`
    height, *width = x.shape.numpy()
    dys, indices = zip(*(node.inputs[:2] for node in reads), strict=True)
    flat = _joined(
        op, indices, lambda v: op.Reshape(op.cast(as_tensor(v), ir.DataType.INT64), [-1])
    )
    dy = _joined(op, dys, lambda v: op.Reshape(v, [-1, *width]))
    rows, slots = op.RowSlots(flat, size=height, outputs=2)
    return Rows(rows, slots, op.GatherGrad(dy, slots, op.shape(dy), axis=0))


def in_places(op: Builder, taken: Any, sums: Any) -> Rows:
    """Rows with a place each: the gradient of row `taken[i]` is `sums[i]`, both `[n, …]`.

    Row 0, and with it place 0, is for places without a row.
    """
    count = int(taken.shape[0])
    places = op.constant(list(range(count)))
    return Rows(taken, op.Where(op.Equal(taken, op.constant(0)), op.constant(0), places), sums)


def _joined(op: Builder, parts: Sequence[Any], flat: Callable[[Any], Any]) -> Any:
    made = [flat(part) for part in parts]
    return op.concat(made, 0) if len(made) > 1 else made[0]


def _readers(x: ir.Value) -> list[ir.Node]:
    return [use.node for use in x.uses() if stage(use.node) not in ("update", "backward")]

"""Updates of parameters, or of rows of tables, as composites: bodies are the formulas."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Tensor
from gradtool.operators.updates import SPARSE, UPDATES, Update


def _register(name: str, update: Update) -> None:
    likes = (0,) * (1 + update.state)

    def body(op: Builder, *inputs: Tensor | None, **options: Any) -> tuple[Tensor, ...]:
        return update.formula(op, *inputs, **options)

    body.__doc__ = update.formula.__doc__
    composite(name, like=likes)(body)


for _name, _update in UPDATES.items():
    _register(_name, _update)


INT64 = ir.DataType.INT64


def _two_vectors(indices: Tensor) -> Outputs:
    return [(indices.shape, INT64)] * 2


@composite("RowSlots", shapes=_two_vectors, outputs=2)
def row_slots(op: Builder, indices: Tensor, *, size: int) -> tuple[Tensor, Tensor]:
    """Rows and slots of indices `[n]` into `size` rows, where the same row has the same slot.

    Slots count the different rows from 0 on, in ascending order of rows.  How many there are
    depends on data, so sums by slot have `n` places, of which the last may be empty.
    """
    rows = op.Mod(op.cast(indices, INT64), op.constant(size))
    ordered, order = op.TopK(rows, op.Shape(rows), axis=0, largest=0, outputs=2)
    before = op.Concat(op.Slice(ordered, [0], [1]), op.Slice(ordered, [0], [-1]), axis=0)
    is_new = op.cast(op.Not(op.Equal(ordered, before)), INT64)
    slots = op.CumSum(is_new, op.constant(0))
    return rows, op.ScatterElements(slots, order, slots, axis=0)


def _register_rows(name: str, update: Update) -> None:
    def body(
        op: Builder, x: Tensor, rows: Tensor, slots: Tensor, sums: Tensor, *rest: Tensor | None,
        **options: Any,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """The formula of the update, applied to the rows with a gradient."""
        numbers, state = rest[: update.numbers], rest[update.numbers :]
        tables = [x, *(table for table in state if table is not None)]
        before, *held = (op.Gather(table, rows, axis=0) for table in tables)
        after = update.formula(
            op, before, op.Gather(sums, slots, axis=0), *numbers, *held, **options
        )
        # A row that is read twice is written twice, the same both times.
        at = op.Unsqueeze(rows, [1])
        return tuple(op.ScatterND(t, at, new) for t, new in zip(tables, after, strict=True))

    body.__doc__ = f"""{update.formula.__doc__}
    That is done to `rows` `[n]` of the tables x and state alone: the gradient of row `rows[i]` is
    `sums[slots[i]]`, as `RowSlots` has them.
    """
    composite(name, like=(0,) * (1 + update.state))(body)


for _name, _update in SPARSE.items():
    _register_rows(_name, _update)

"""Gradients of tables as rows, and updates of these rows alone, in place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.operators.updates import SPARSE, Update
from gradtool.ops.index.kernel_accumulate import normalised
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.select import take
from gradtool.ops.shared.sums import BLOCK, accumulator
from gradtool.ops.shared.tape import scalars
from gradtool.ops.shared.types import Array, Arrays, Specs
from gradtool.ops.update.kernel import flat_numbers, run_block, tape_of, tape_rooms

INT64 = np.dtype(np.int64)


def _slots_work(indices: Spec, *, out: Sequence[Spec | None]) -> list[Spec]:
    n = indices.shape
    return [] if out[1] is None else [Spec(n, INT64), Spec(n, INT64), Spec(n, np.dtype(bool))]


@kernel("ai.gradtool::RowSlots", work=_slots_work)
def row_slots(xp: Any, indices: Array, *, out: Arrays, work: Arrays, size: int) -> None:
    """Rows and slots of indices: equal ones have the same slot, in ascending order of rows.

    Row and place are sorted as one number, `row · n + place`, which needs no room beside it.
    """
    n = len(indices)
    if out[1] is None:
        normalised(xp, indices, size, out[0])
    if out[1] is None or not n:
        return
    keys, order, is_new = work
    rows = normalised(xp, indices, size, out[1] if out[0] is None else out[0])
    order.fill(n)
    order[0] = 0
    xp.cumsum(order, out=keys)  # n times 0, 1, 2, …
    xp.floor_divide(keys, n, out=order)
    xp.multiply(rows, n, out=keys)
    keys += order
    keys.sort()
    xp.remainder(keys, n, out=order)
    xp.floor_divide(keys, n, out=keys)
    is_new[:1] = False
    xp.not_equal(keys[1:], keys[:-1], out=is_new[1:])
    xp.cumsum(is_new, out=keys)
    out[1][order] = keys


def _inputs(inputs: Sequence[Any], sums: Any) -> tuple[Any, ...]:
    """Inputs of the formula, from those of its form for rows: gradient and state by rows."""
    x, _, _, _, *rest = inputs
    return (x, sums, *rest)


def _tables(update: Update, inputs: Sequence[Any]) -> list[Any]:
    """The parameter and its state."""
    return [inputs[0], *inputs[4 + update.numbers :]]


def _rows_of(shape: Sequence[int], count: int) -> int:
    """Rows of a block, for `count` rows of a table."""
    return max(min(at_a_time(BLOCK) // max(math.prod(shape[1:]), 1), count), 1)


def _register(name: str, update: Update) -> None:
    def work(*inputs: Spec | None, out: Sequence[Spec | None], **options: Any) -> Specs:
        x, rows, _, sums, *_ = inputs
        assert x is not None and rows is not None  # noqa: S101, PT018 - required
        taken = _inputs(inputs, sums)
        rooms = tape_rooms(tape_of(update, taken, out, options), update, taken, out)
        shape = (_rows_of(x.shape, rows.shape[0]), *x.shape[1:])
        tables = [Spec(shape, x.dtype)] * len(_tables(update, inputs))
        block = Spec((math.prod(shape),), accumulator(x.dtype))
        return [*tables, *([block] * rooms), Spec(rows.shape, INT64)]

    def run(xp: Any, *inputs: Array, out: Arrays, work: Arrays, **options: Any) -> None:
        """Evaluate the formula of the update on the rows with a gradient, in place."""
        _, rows, slots, sums, *_ = inputs
        taken = _inputs(inputs, sums)
        tape = tape_of(update, taken, out, options)
        tables = _tables(update, inputs)
        for table, new in zip(tables, out, strict=True):
            if new is not None and not xp.may_share_memory(table, new):
                xp.copyto(new, table)
        if not sums.size:
            return
        numbered = flat_numbers(update, taken, accumulator(sums.dtype))
        numbers = scalars(xp, tape, numbered)
        *work, row_of = work
        row_of.fill(0)
        row_of[slots] = rows
        used = int(slots.max()) + 1
        parts, rooms = work[: len(tables)], work[len(tables) :]
        block = parts[0].shape[0]
        for start in range(0, used, block):
            at = row_of[start : min(start + block, used)]
            held = [part[: len(at)] for part in parts]
            for table, part in zip(tables, held, strict=True):
                take(xp, table, at, axis=0, out=part)
            size = held[0].size
            x, *state = (part.reshape(-1) for part in held)
            g = sums[start : start + len(at)].reshape(-1)
            given = [x, g, *numbered[2 : 2 + update.numbers], *state]
            results = [None if o is None else s for o, s in zip(out, (x, *state), strict=True)]
            run_block(xp, tape, update, given, results, [r[:size] for r in rooms], numbers)
            for new, part in zip(out, held, strict=True):
                if new is not None:
                    new[at] = part

    run.__doc__ = f"{update.formula.__doc__}\n    Of the rows that have a gradient alone."
    over = (0, *range(4 + update.numbers, 4 + update.numbers + update.state))
    kernel(f"ai.gradtool::{name}", work=work, over=over)(run)


for _name, _update in SPARSE.items():
    _register(_name, _update)

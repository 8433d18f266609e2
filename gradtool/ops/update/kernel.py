"""Updates of parameters: a formula of `gradtool.operators.updates`, one block at a time, in place.

Half-precision blocks are computed in float32 and rounded at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.operators.updates import UPDATES, Update
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.sums import BLOCK, accumulator
from gradtool.ops.shared.tape import Tape, player, record, scalars
from gradtool.ops.shared.types import Array, Arrays, Specs


def tape_of(
    update: Update, inputs: Sequence[Any], out: Sequence[Any], options: dict[str, Any]
) -> Tape:
    """The recorded formula of a call with these inputs (None where absent) and outputs."""
    over = tuple(update.replaced(k) for k in range(len(out)))
    numbers = range(update.tensors, update.tensors + update.numbers)
    return record(
        update.formula,
        tuple(i is not None for i in inputs),
        frozenset(numbers),
        over,
        tuple(o is not None for o in out),
        tuple(sorted(options.items())),
    )


def tape_rooms(tape: Tape, update: Update, inputs: Sequence[Any], out: Sequence[Any]) -> int:
    """Blocks of a tape beside its inputs and outputs, those of `convert` included."""
    target = next(o for o in out if o is not None)
    if accumulator(target.dtype) == target.dtype:
        return tape.rooms
    converted = sum(inputs[s] is not None for s in update.whole(len(inputs)))
    return tape.rooms + converted + sum(o is not None for o in out)


def flat_numbers(update: Update, inputs: Sequence[Array | None], wide: Any) -> list[Array | None]:
    """The inputs of a formula in one dimension, its numbers in its computing type."""
    slots = update.whole(len(inputs))
    return [
        i if i is None else i.reshape(-1) if s in slots else i.reshape(()).astype(wide)
        for s, i in enumerate(inputs)
    ]


def run_block(
    xp: Any, tape: Tape, update: Update, given: list[Any], results: list[Any], rooms: list[Any],
    numbers: list[Any],
) -> None:  # fmt: skip
    """Run a block, in float32 at least."""
    target = next(r for r in results if r is not None)
    if accumulator(target.dtype) == target.dtype:
        player(xp, tape)(*given, *results, *rooms, *numbers)
    else:
        _in_float32(xp, tape, given, results, rooms, numbers, update.whole(len(given)))


def _register(name: str, update: Update) -> None:
    def work(*inputs: Spec | None, out: Sequence[Spec | None], **options: Any) -> Specs:
        target = next(o for o in out if o is not None)
        rooms = tape_rooms(tape_of(update, inputs, out, options), update, inputs, out)
        block = Spec((min(at_a_time(BLOCK), math.prod(target.shape)),), accumulator(target.dtype))
        return [block] * rooms

    def run(xp: Any, *inputs: Array, out: Arrays, work: Arrays, **options: Any) -> None:
        """Evaluate the formula of the update, a block of elements at a time."""
        tape = tape_of(update, inputs, out, options)
        target = next(o for o in out if o is not None)
        slots = update.whole(len(inputs))
        flat = flat_numbers(update, inputs, accumulator(target.dtype))
        made = [None if o is None else o.reshape(-1) for o in out]
        numbers = scalars(xp, tape, flat)
        size = at_a_time(BLOCK)
        for start in range(0, target.size, size):
            part = slice(start, min(start + size, target.size))
            given = [i[part] if s in slots and i is not None else i for s, i in enumerate(flat)]
            results = [None if m is None else m[part] for m in made]
            rooms = [w[: part.stop - start] for w in work]
            run_block(xp, tape, update, given, results, rooms, numbers)

    run.__doc__ = update.formula.__doc__
    kernel(name, work=work, over=update.over, may_inplace=update.donors)(run)


def _in_float32(
    xp: Any, tape: Tape, given: list[Any], results: list[Any], rooms: list[Any],
    numbers: list[Any], slots: Sequence[int],
) -> None:  # fmt: skip
    """Run a block converted to float32, and round its results."""
    rooms, spare = rooms[: tape.rooms], rooms[tape.rooms :]
    for slot in slots:
        if given[slot] is not None:
            wide = spare.pop()
            xp.copyto(wide, given[slot])
            given[slot] = wide
    wider = [None if r is None else spare.pop() for r in results]
    player(xp, tape)(*given, *wider, *rooms, *numbers)
    for narrow, wide in zip(results, wider, strict=True):
        if narrow is not None:
            xp.copyto(narrow, wide, casting="unsafe")


for _name, _update in UPDATES.items():
    _register(f"ai.gradtool::{_name}", _update)

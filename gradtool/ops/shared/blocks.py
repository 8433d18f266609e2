"""Elementwise functions of several steps, a block that stays in cache at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.ops.kernels import F, kernel
from gradtool.ops.shared.sums import BLOCK, accumulator, blocks, largest_block
from gradtool.ops.shared.types import Array, Arrays, Specs

Block = Callable[..., object]  # of the inputs, the place of the result, and temporaries


def pointwise(
    name: str,
    *,
    temporaries: int | Callable[..., int] = 0,
    masks: int | Callable[..., int] = 0,
    may_inplace: tuple[int, ...] = (),
    strided: bool = True,
) -> Callable[[F], F]:
    """Register `f(xp, *inputs, out, *temporaries, *masks, **attributes)` as a kernel.

    `f` sees one block at a time: inputs broadcast to the output, and scratch of its size, of the
    output's type and bool, at the end of its buffer: planned memory is then used to the end even
    where blocks are smaller.  How many may be functions of the inputs and the attributes.
    Half-precision blocks are converted to float32 and back.  Inputs named by `may_inplace` may be
    the output: `f` reads them before it writes.
    """

    def work(*inputs: Spec | None, out: Specs, **attributes: Any) -> list[Spec]:
        counts = (temporaries, masks)
        spare, flags = (n(*inputs, **attributes) if callable(n) else n for n in counts)
        return block_work(inputs, out[0], spare, flags)

    def register(function: F) -> F:
        """Register the function of one block as the kernel of the operator."""

        def run(xp: Any, *inputs: Array, out: Arrays, work: Arrays, **attributes: Any) -> None:
            by_blocks(xp, partial(function, xp, **attributes), inputs, out[0], work)

        run.__name__ = function.__name__
        run.__doc__ = function.__doc__
        kernel(name, may_inplace=may_inplace, strided=strided, work=work)(run)
        return function

    return register


def block_work(inputs: Sequence[Spec | None], y: Spec, spare: int, flags: int) -> list[Spec]:
    """The temporaries of a function of blocks: so many numbers, and booleans."""
    size = block_size(y.shape, inputs)
    wide = accumulator(y.dtype)
    if wide != y.dtype:
        spare += 1 + sum(i is not None and _is_narrow(i, y) for i in inputs)
    return [Spec((size,), wide)] * spare + [Spec((size,), np.dtype(bool))] * flags


def by_blocks(xp: Any, function: Block, inputs: Arrays, y: Array, work: Arrays) -> None:
    """Call `function(*inputs, out, *temporaries)` on every block."""
    narrow = accumulator(y.dtype) != y.dtype
    scratch: Arrays = []
    for part, given in aligned(xp, y, inputs):
        if not scratch or scratch[0].shape != part.shape:
            scratch = [w[w.size - part.size :].reshape(part.shape) for w in work]
        if narrow:
            _in_float32(xp, function, part, given, scratch)
        else:
            function(*given, part, *scratch)


def block_size(shape: Sequence[int], inputs: Sequence[Spec | None]) -> int:
    """Number of elements of the largest block of `aligned` for an output of this shape.

    Flat blocks are assumed where nothing is broadcast; those of arrays with gaps may be smaller.
    """
    shapes = (tuple(i.shape) for i in inputs if i is not None and math.prod(i.shape) != 1)
    if all(s == tuple(shape) for s in shapes):
        return min(at_a_time(BLOCK), math.prod(shape))
    return largest_block(shape)


def aligned(xp: Any, y: Array, inputs: Arrays) -> Iterator[tuple[Array, Arrays]]:
    """Pairs of blocks, of the output and of the inputs; numbers stay as they are."""
    numbers = [i is None or i.size == 1 for i in inputs]
    arrays = (y, *(i for i, n in zip(inputs, numbers, strict=True) if not n))
    if all(i.shape == y.shape and i.flags.c_contiguous for i in arrays):
        y = y.reshape(-1)
        inputs = [i if n else i.reshape(-1) for i, n in zip(inputs, numbers, strict=True)]
    inputs = [
        i if i is None else i.reshape(()) if n else xp.broadcast_to(i, y.shape)
        for i, n in zip(inputs, numbers, strict=True)
    ]
    for index in blocks(y.shape):
        yield y[index], [i if n else i[index] for i, n in zip(inputs, numbers, strict=True)]


def _is_narrow(i: Spec, y: Spec) -> bool:
    """Whether the blocks of an input are converted with the output's."""
    return i.dtype == y.dtype and math.prod(i.shape) != 1


def _in_float32(xp: Any, function: Block, part: Array, given: Arrays, scratch: Arrays) -> None:
    """Call with half-precision blocks converted to float32, and the result converted back.

    Only floats of the output's type are converted; masks and absent inputs are not.
    """
    wide, rooms = [], list(scratch)
    for block in given:
        if block is None or block.dtype != part.dtype:
            wide.append(block)
        elif block.ndim != part.ndim:
            wide.append(block.astype(accumulator(block.dtype)))
        else:
            room = rooms.pop(0)
            xp.copyto(room, block)
            wide.append(room)
    result, *spare = rooms
    function(*wide, result, *spare)
    xp.copyto(part, result, casting="unsafe")

"""Products with matrices of few bits, of which a block is decoded at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.low_bits import middle, shifts, table
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.select import take
from gradtool.ops.shared.sums import accumulator
from gradtool.ops.shared.types import Array, Arrays, DType, Specs

BLOCK = 1 << 17  # numbers decoded at a time, at least a block of a row
WIDTH = 512  # columns of them, where columns are cut
BYTE, INDEX = np.dtype(np.uint8), np.dtype(np.intp)


@dataclass(frozen=True)
class Coded:
    """A matrix of few bits, as arrays or as their specs."""

    codes: Any
    scale: Any
    zero: Any
    groups: Any
    bits: int
    block_size: int
    size: int
    values: str
    turned: int

    @staticmethod
    def of(
        codes: Any, scale: Any, zero: Any = None, groups: Any = None, *,
        bits: int, block_size: int, size: int, turned: int = 1, values: str = "",
    ) -> Coded:  # fmt: skip
        """The matrix of operands and attributes of `QuantizedMatMul`."""
        return Coded(codes, scale, zero, groups, bits, block_size, size, values, turned)

    def in_pieces(self) -> Coded:
        """The matrix with pieces for blocks, where rows of one long block are cut by columns."""
        rows, blocks, _ = self.codes.shape
        size = math.gcd(self.block_size, WIDTH)
        if self.turned or blocks > 1 or self.groups is not None or size % 8:
            return self
        shape = rows, self.block_size // size, size * self.bits // 8
        codes = self.codes
        codes = Spec(shape, codes.dtype) if isinstance(codes, Spec) else codes.reshape(shape)
        return replace(self, codes=codes, block_size=size)

    @property
    def at_once(self) -> tuple[int, int]:
        """Rows and blocks of a row that are decoded together."""
        rows, blocks, _ = self.codes.shape
        wide = blocks if self.turned else min(blocks, max(1, WIDTH // self.block_size))
        return min(rows, max(1, BLOCK // max(1, wide * self.block_size))), wide

    def room(self, dtype: DType) -> list[Spec]:
        """Workspace of `decode`: numbers of `dtype`, codes, zero points, what groups choose."""
        rows, wide = self.at_once
        count = rows * wide * self.block_size
        by_column = self.groups is not None and self.zero is not None and self.zero.dtype == BYTE
        needed = [Spec((count,), dtype), Spec((count if self.bits < 8 or by_column else 0,), BYTE)]
        if self.zero is not None and self.zero.dtype == BYTE and self.bits < 8:
            needed.append(Spec((rows * self.zero.shape[1] * (8 // self.bits),), BYTE))
        if self.groups is not None:
            chosen = (rows * min(self.size, wide * self.block_size),)
            needed += [Spec(self.groups.shape, INDEX), Spec(chosen, np.dtype(self.scale.dtype))]
        if self.values:
            needed += [Spec((count,), INDEX), Spec((16,), dtype)]
        return needed

    def put_rows(self, xp: Any, rows: slice, out: Array, work: Arrays) -> None:
        """Put whole rows into `out` [n, size], some at a time; of a `turned` matrix."""
        step, across = self.at_once
        for start in range(rows.start, rows.stop, step):
            lines = slice(start, min(rows.stop, start + step))
            to = out[start - rows.start : lines.stop - rows.start]
            xp.copyto(to, _columns(self.decode(xp, lines, slice(0, across), work), self.size))

    def decode(self, xp: Any, rows: slice, blocks: slice, work: Arrays) -> Array:
        """The numbers `[rows, columns of the blocks]`."""
        of = blocks if self.scale.shape[1] > 1 else slice(0, 1)  # of pieces: their one block
        wide, spare, *work = work
        part = self.codes[rows, blocks]
        shape = (part.shape[0], part.shape[1], self.block_size)
        count = math.prod(shape)
        wide = wide[:count].reshape(shape)
        codes = part
        if self.bits < 8:
            codes = _unpack(xp, part, self.bits, spare[:count].reshape(shape), self.values)
        zero = None if self.zero is None else self.zero[rows]
        if zero is not None and zero.dtype == BYTE and self.bits < 8:
            zero = _unpack(xp, zero, self.bits, _window(work[0], zero, 8 // self.bits))
            work = work[1:]
        if self.values:
            places, known, *_ = work
            places = places[:count].reshape(shape)
            xp.copyto(places, codes)
            known[:] = xp.asarray(table(self.values, known.dtype))
            take(xp, known, places, out=wide)
            wide *= self.scale[rows, of, None]
            return wide.reshape(shape[0], -1)
        xp.copyto(wide, codes)
        if self.groups is None:
            wide -= middle(self.bits) if zero is None else zero[:, of, None]
            wide *= self.scale[rows, of, None]
            return wide.reshape(shape[0], -1)
        first = blocks.start * self.block_size
        chosen = _columns(wide.reshape(shape[0], -1), self.size - first)
        places, picked, *_ = work
        xp.copyto(places, self.groups)
        xp.clip(places, 0, self.codes.shape[1] - 1, out=places)
        places = places[first : first + chosen.shape[1]]
        if zero is None:
            chosen -= middle(self.bits)
        else:
            to = spare if zero.dtype == BYTE else picked
            chosen -= _picked(xp, zero, places, to, chosen.shape)
        chosen *= _picked(xp, self.scale[rows], places, picked, chosen.shape)
        return chosen


def _picked(xp: Any, by_block: Array, places: Array, to: Array, shape: tuple[int, ...]) -> Array:
    to = to[: math.prod(shape)].reshape(shape)
    take(xp, by_block, places, axis=1, out=to)
    return to


def _window(to: Array, like: Array, times: int) -> Array:
    shape = (like.shape[0], like.shape[1] * times)
    return to[: math.prod(shape)].reshape(shape)


def _columns(matrix: Array, count: int) -> Array:
    return matrix[:, :count]


def _unpack(xp: Any, packed: Array, bits: int, to: Array, values: str = "") -> Array:
    """Codes one a byte."""
    places = shifts(bits, values)
    for at, shift in enumerate(places):
        xp.right_shift(packed, BYTE.type(shift), out=to[..., at :: len(places)])
    xp.bitwise_and(to, BYTE.type((1 << bits) - 1), out=to)
    return to


def _work(x: Spec, *matrix: Spec | None, out: Specs, **given: Any) -> list[Spec]:
    held = Coded.of(*matrix, **given).in_pieces()
    dtype = accumulator(x.dtype)
    rows, wide = held.at_once
    count = math.prod(x.shape[:-1])
    columns = rows if held.turned else min(held.size, wide * held.block_size)
    needed = held.room(dtype)
    if dtype != x.dtype:
        needed.append(Spec((count * x.shape[-1],), dtype))
    if dtype != x.dtype or _is_summed(held):
        needed.append(Spec((count * columns,), dtype))
    if dtype != x.dtype and _is_summed(held):
        needed.append(Spec((count * columns,), dtype))
    return needed


def _is_summed(held: Coded) -> bool:
    """Whether several products are added to one result."""
    return not held.turned and held.at_once[0] < held.codes.shape[0]


@kernel("ai.gradtool::QuantizedMatMul", work=_work)
def quantized_matmul(
    xp: Any, x: Array, *matrix: Array | None, out: Arrays, work: Arrays, **given: Any
) -> None:
    """`y = x Wᵀ` (not `turned`: `x W`) of a matrix W of few bits, decoded a block at a time."""
    held = Coded.of(*matrix, **given).in_pieces()
    dtype = accumulator(x.dtype)
    rest = list(work[len(held.room(dtype)) :])
    y = out[0].reshape(-1, out[0].shape[-1])
    x = x.reshape(-1, x.shape[-1])
    if dtype != x.dtype:
        wide = rest.pop(0).reshape(x.shape)
        xp.copyto(wide, x)
        x = wide
    rows, blocks = held.at_once
    count, across = held.codes.shape[:2]
    if not count or not held.size:
        y.fill(0)
        return
    step = blocks * held.block_size
    for first in range(0, across, blocks):
        part = slice(first, min(across, first + blocks))
        columns = slice(first * held.block_size, min(held.size, first * held.block_size + step))
        for start in range(0, count, rows):
            lines = slice(start, min(count, start + rows))
            w = _columns(held.decode(xp, lines, part, work), columns.stop - columns.start)
            if held.turned:
                _multiply(xp, x, w.T, y[:, lines], rest)
            else:
                _multiply(xp, x[:, lines], w, y[:, columns], rest, (start > 0, lines.stop == count))


def _multiply(
    xp: Any, a: Array, b: Array, y: Array, rest: Arrays, sums: tuple[bool, bool] = (False, True)
) -> None:
    """`y = a b`, or added to what the products before came to; the last of them is rounded."""
    goes_on, ends = sums
    rooms = [r[: y.size].reshape(y.shape) for r in rest]
    total = y if y.dtype == a.dtype else rooms.pop(0)
    if goes_on:
        term = rooms[0]
        xp.matmul(a, b, out=term)
        xp.add(total, term, out=total)
    else:
        xp.matmul(a, b, out=total)
    if total is not y and ends:
        xp.copyto(y, total, casting="unsafe")

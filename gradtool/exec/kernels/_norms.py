"""Normalisation over some axes of a view, in blocks that stay in cache.

Every operator of the family is this on a view of its input: layer normalisation on `[rows, D]`
over the last axis, group normalisation on `[N, G, C/G, S]` over the last two, batch normalisation
on `[N, C, S]` over the first and the last.  Means come before centred squares, so that nothing
cancels.  Sums are in float32 at least.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtool.program import Spec

BLOCK = 1 << 19  # bytes of one buffer
SHORT = 256  # elements of a line, below which one dot product per line takes too many calls
Index = tuple[slice, ...]


@dataclass(frozen=True)
class Layout:
    """A view of `shape`, normalised over `axes`, in blocks of `step` elements along each axis."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    step: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def rows(cls, shape: tuple[int, ...], axes: tuple[int, ...], dtype: np.dtype[Any]) -> Layout:
        """For a view whose last axes are normalised: as many whole rows as fit."""
        room = BLOCK // wide(dtype).itemsize
        step = []
        for size in reversed(shape):
            step.append(min(size, max(1, room)))
            room //= max(1, step[-1])
        return cls(shape, axes, tuple(reversed(step)), dtype)

    @classmethod
    def channels(cls, x: tuple[int, ...], dtype: np.dtype[Any]) -> Layout:
        """For x normalised over all axes but the second: whole channels, in runs long enough."""
        images, count, size = shape = (x[0], x[1], math.prod(x[2:]))
        room = BLOCK // wide(dtype).itemsize
        inner = min(size, room)
        run = -(-256 // max(1, inner))
        some = min(count, max(1, run, room // max(1, inner * images)))
        return cls(
            shape, (0, 2), (min(images, max(1, room // max(1, inner * some))), some, inner), dtype
        )

    @classmethod
    def plain(cls, x: tuple[int, ...], dtype: np.dtype[Any]) -> Layout:
        """For x taken channel by channel, with statistics that are known."""
        return cls.rows((x[0], x[1], math.prod(x[2:])), (), dtype)

    @property
    def wide(self) -> np.dtype[Any]:
        """The type of sums."""
        return wide(self.dtype)

    @property
    def count(self) -> int:
        """How many elements each statistic is over."""
        return math.prod(self.shape[a] for a in self.axes)

    @property
    def statistics(self) -> tuple[int, ...]:
        """The shape of the statistics."""
        return tuple(1 if a in self.axes else n for a, n in enumerate(self.shape))

    def block(self) -> Spec:
        """A buffer for one block."""
        return Spec((math.prod(self.step),), self.wide)

    @property
    def flat(self) -> bool:
        """Whether lines have one element, so that the first axis is summed instead."""
        return self.shape[-1] == 1 and self.axes[0] == 0 and len(self.axes) > 1

    def lines(self) -> Spec:
        """A buffer for one number per line of a block, a line being a run of the last axis."""
        return Spec((math.prod(self.step[int(self.flat) : -1]),), self.wide)

    def other(self) -> Spec:
        """A buffer for products, empty if they are summed as they are made."""
        return self.block() if self.step[-1] < SHORT else Spec((0,), self.wide)

    def line(self) -> Spec:
        """A buffer for one line, or for one column if those are summed."""
        return Spec((self.step[0] if self.flat else self.step[-1],), self.wide)

    def small(self) -> Spec:
        """A buffer for the statistics of one block."""
        kept = (1 if a in self.axes else n for a, n in enumerate(self.step))
        return Spec((math.prod(kept),), self.wide)

    def blocks(self) -> Iterator[list[Index]]:
        """The parts of each group of blocks that share their statistics."""
        spans = [
            [slice(a, min(a + step, size)) for a in range(0, size, step)] if step else []
            for size, step in zip(self.shape, self.step, strict=True)
        ]
        outer = [[slice(None)] if a in self.axes else s for a, s in enumerate(spans)]
        inner = [s if a in self.axes else [slice(None)] for a, s in enumerate(spans)]
        for chosen in itertools.product(*outer):
            yield [
                tuple(part[a] if a in self.axes else span for a, span in enumerate(chosen))
                for part in itertools.product(*inner)
            ]


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which numbers of `dtype` are summed."""
    return dtype if dtype.itemsize > 2 else np.dtype(np.float32)


def pick(array, index):
    """The part of a broadcast array that meets the block at `index`."""
    sizes = zip(index, array.shape, strict=True)
    return array[tuple(slice(None) if n == 1 else i for i, n in sizes)]


def like(buffer, shape):
    """The beginning of a flat buffer, with a shape."""
    return buffer[: math.prod(shape)].reshape(shape)


def reduced(shape, axes):
    """`shape` with `axes` of size one."""
    return tuple(1 if a in axes else n for a, n in enumerate(shape))


@dataclass(frozen=True)
class Room:
    """The buffers of one call, and what is summed with them.

    Lines are summed by matrix products with ones, which is several times faster than adding.
    """

    xp: Any
    axes: tuple[int, ...]
    flat: bool
    block: Any
    other: Any
    ones: Any
    lines: Any
    factor: Any
    mean: Any
    rstd: Any
    term: Any

    @classmethod
    def of(cls, xp, layout, work):
        """From the buffers of `Room.specs`."""
        block, other, ones, *rest = work
        ones.fill(1)
        return cls(xp, layout.axes, layout.flat, block, other, ones, *rest)

    @classmethod
    def specs(cls, layout):
        """What a call needs as `work`."""
        line, small = layout.lines(), layout.small()
        return [layout.block(), layout.other(), layout.line(), line, line, small, small, small]

    def statistic(self, buffer, shape):
        """A buffer with a number for each statistic of a block of `shape`."""
        return like(buffer, reduced(shape, self.axes))

    def widened(self, x, buffer):
        """A block in the type of sums: itself, or a copy in `buffer`."""
        if x.dtype == buffer.dtype:
            return x
        copied = like(buffer, x.shape)
        self.xp.copyto(copied, x)
        return copied

    def sums(self, x, buffer):
        """The sum of each line of a block that is in the type of sums."""
        if self.flat:
            out = like(buffer, (1, *x.shape[1:-1]))
            return self.xp.matmul(self.ones[: x.shape[0]].reshape(1, -1), x[..., 0], out=out)
        out = like(buffer, x.shape[:-1])
        return self.xp.matmul(x, self.ones[: x.shape[-1]], out=out)

    def products(self, x, y, buffer):
        """The sum of `x · y` over each line of two blocks."""
        if self.other.size:
            product = like(self.other, x.shape)
            self.xp.multiply(x, y, out=product)
            return self.sums(product, buffer)
        out = like(buffer, x.shape[:-1])
        self.xp.matmul(x[..., None, :], y[..., :, None], out=out[..., None, None])
        return out

    def add(self, lines, out):
        """Add a number for each line to those of `out`, which has axes of size one."""
        part = out[..., 0]
        axes = tuple(
            a for a, (n, m) in enumerate(zip(part.shape, lines.shape, strict=True)) if n != m
        )
        if axes:
            term = like(self.factor, part.shape)
            self.xp.sum(lines, axis=axes, keepdims=True, out=term)
            lines = term
        self.xp.add(part, lines, out=part)


def moments(room, x, layout, parts, epsilon, variance=None):
    """Mean and 1/std of a group of blocks; of a single block, the centred numbers as well.

    `variance` takes the variance.
    """
    xp, shape = room.xp, x[parts[0]].shape
    mean, rstd = room.statistic(room.mean, shape), room.statistic(room.rstd, shape)
    mean.fill(0)
    for index in parts:
        room.add(room.sums(room.widened(x[index], room.block), room.lines), mean)
    xp.divide(mean, layout.count, out=mean)
    rstd.fill(0)
    for index in parts:
        centred = like(room.block, x[index].shape)
        xp.subtract(x[index], mean, out=centred)
        room.add(room.products(centred, centred, room.lines), rstd)
    if variance is not None:
        xp.divide(rstd, layout.count, out=pick(variance, parts[0]))
    inverse_root(xp, rstd, layout.count, epsilon)
    return mean, rstd


def scales(room, x, layout, parts, epsilon):
    """1 / root mean square of a group of blocks."""
    rstd = room.statistic(room.rstd, x[parts[0]].shape)
    rstd.fill(0)
    for index in parts:
        part = room.widened(x[index], room.block)
        room.add(room.products(part, part, room.lines), rstd)
    inverse_root(room.xp, rstd, layout.count, epsilon)
    return rstd


def inverse_root(xp, x, count, epsilon):
    """`x = 1 / sqrt(x / count + epsilon)`."""
    xp.divide(x, count, out=x)
    xp.add(x, epsilon, out=x)
    xp.sqrt(x, out=x)
    xp.divide(1, x, out=x)


def forward(room, layout, x, scale, bias, y, kept, epsilon, *, centre=True, variance=None):
    """`y = (x - mean) · rstd · scale + bias`; `kept` takes mean and rstd where they are wanted."""
    xp, x, y = room.xp, x.reshape(layout.shape), y.reshape(layout.shape)
    for parts in layout.blocks():
        mean = None
        if centre:
            mean, rstd = moments(room, x, layout, parts, epsilon, variance)
        else:
            rstd = scales(room, x, layout, parts, epsilon)
        for target, value in zip(kept, (mean, rstd), strict=False):
            if target is not None:
                part = pick(target.reshape(layout.statistics), parts[0])
                xp.copyto(part, value, casting="unsafe")
        for index in parts:
            n = like(room.block, x[index].shape)
            factor, rest = rstd, scale
            if scale.shape[-1] == 1:
                factor, rest = combined(room, rstd, pick(scale, index)), None
            if centre and len(parts) > 1:
                xp.subtract(x[index], mean, out=n)
            xp.multiply(n if centre else x[index], factor, out=n)
            scaled(xp, n, rest, bias, index, y[index])


def combined(room, rstd, scale):
    """`rstd · scale`, where scale is constant along lines."""
    shape = tuple(max(sizes) for sizes in zip(rstd.shape, scale.shape, strict=True))
    return room.xp.multiply(rstd, scale, out=like(room.factor, shape))


def scaled(xp, n, scale, bias, index, y):
    """`y = n · scale + bias`, rounded once."""
    if scale is not None:
        out = y if bias is None else n
        xp.multiply(n, pick(scale, index), out=out, casting="unsafe")
    if bias is not None:
        xp.add(n, pick(bias, index), out=y, casting="unsafe")
    elif scale is None:
        xp.copyto(y, n, casting="unsafe")

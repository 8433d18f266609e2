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

BLOCK = 1 << 18  # bytes of one buffer
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

    def small(self) -> Spec:
        """A buffer for the statistics of one block."""
        kept = (1 if a in self.axes else n for a, n in enumerate(self.step))
        return Spec((math.prod(kept),), self.wide)

    def portion(self, shape: tuple[int, ...]) -> Spec:
        """A buffer for the part of an array of `shape`, broadcast to the view, in one block."""
        sizes = zip(shape, self.step, strict=True)
        return Spec((math.prod(min(n, step) for n, step in sizes),), self.wide)

    def blocks(self) -> Iterator[list[Index]]:
        """The parts of each group of blocks that share their statistics."""
        spans = [
            [slice(a, min(a + step, size)) for a in range(0, size, step)] if step else []
            for size, step in zip(self.shape, self.step, strict=True)
        ]
        outer = [[slice(None)] if a in self.axes else s for a, s in enumerate(spans)]
        inner = [s if a in self.axes else [slice(None)] for a, s in enumerate(spans)]
        for chosen in itertools.product(*outer):
            parts = list(itertools.product(*inner))
            yield [
                tuple(i if a in self.axes else o for a, (o, i) in enumerate(zip(chosen, part, strict=True)))
                for part in parts
            ]  # fmt: skip


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


def total(xp, x, axes, out):
    """Sum x over `axes`, kept, into `out`."""
    xp.sum(x, axis=axes, dtype=out.dtype, keepdims=True, out=out)


def squares(xp, x, axes, out, work):
    """The sum of x² over `axes`, kept, into `out`. x is contiguous."""
    trailing = tuple(range(x.ndim - len(axes), x.ndim))
    if axes == trailing and out.size < x.size:
        flat = x.reshape(out.size, 1, -1)
        xp.matmul(flat, flat.swapaxes(1, 2), out=out.reshape(-1, 1, 1))
    else:
        xp.multiply(x, x, out=work)
        total(xp, work, axes, out)


def moments(xp, x, layout, parts, epsilon, buffers, variance=None):
    """Mean and 1/std of a group of blocks; of a single block, the centred numbers as well.

    `variance` takes the variance.  Buffers: two blocks, three of statistics.
    """
    block, other, *small = buffers
    axes = layout.axes
    shape = reduced(x[parts[0]].shape, axes)
    mean, rstd, term = (like(s, shape) for s in small[:3])
    mean.fill(0)
    for index in parts:
        total(xp, x[index], axes, term)
        xp.add(mean, term, out=mean)
    xp.divide(mean, layout.count, out=mean)
    rstd.fill(0)
    for index in parts:
        centred = like(block, x[index].shape)
        xp.subtract(x[index], mean, out=centred)
        squares(xp, centred, axes, term, like(other, centred.shape))
        xp.add(rstd, term, out=rstd)
    if variance is not None:
        xp.divide(rstd, layout.count, out=pick(variance, parts[0]))
    inverse_root(xp, rstd, layout.count, epsilon)
    return mean, rstd


def scales(xp, x, layout, parts, epsilon, buffers):
    """1 / root mean square of a group of blocks."""
    block, other, *small = buffers
    shape = reduced(x[parts[0]].shape, layout.axes)
    rstd, term = like(small[1], shape), like(small[2], shape)
    rstd.fill(0)
    for index in parts:
        copied = like(block, x[index].shape)
        xp.copyto(copied, x[index])
        squares(xp, copied, layout.axes, term, like(other, copied.shape))
        xp.add(rstd, term, out=rstd)
    inverse_root(xp, rstd, layout.count, epsilon)
    return rstd


def inverse_root(xp, x, count, epsilon):
    """`x = 1 / sqrt(x / count + epsilon)`."""
    xp.divide(x, count, out=x)
    xp.add(x, epsilon, out=x)
    xp.sqrt(x, out=x)
    xp.divide(1, x, out=x)


def forward_work(layout):
    """The buffers of `forward`."""
    return [layout.block(), layout.block(), layout.small(), layout.small(), layout.small()]


def forward(xp, layout, x, scale, bias, y, kept, epsilon, buffers, *, centre=True, variance=None):
    """`y = (x - mean) · rstd · scale + bias`; `kept` takes mean and rstd where they are wanted."""
    x, y = x.reshape(layout.shape), y.reshape(layout.shape)
    for parts in layout.blocks():
        mean = None
        if centre:
            mean, rstd = moments(xp, x, layout, parts, epsilon, buffers, variance)
        else:
            rstd = scales(xp, x, layout, parts, epsilon, buffers)
        for target, value in zip(kept, (mean, rstd), strict=False):
            if target is not None:
                xp.copyto(
                    pick(target.reshape(layout.statistics), parts[0]), value, casting="unsafe"
                )
        for index in parts:
            n = like(buffers[0], x[index].shape)
            if len(parts) > 1:
                xp.subtract(x[index], mean if centre else 0, out=n)
            xp.multiply(n, rstd, out=n)
            scaled(xp, n, scale, bias, index, y[index])


def scaled(xp, n, scale, bias, index, y):
    """`y = n · scale + bias`, rounded once."""
    if scale is None:
        xp.copyto(y, n, casting="unsafe")
    elif bias is None:
        xp.multiply(n, pick(scale, index), out=y, casting="unsafe")
    else:
        xp.multiply(n, pick(scale, index), out=n)
        xp.add(n, pick(bias, index), out=y, casting="unsafe")

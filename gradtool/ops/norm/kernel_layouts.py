"""Views of normalised arrays, and their split into blocks that stay in cache.

Every operator of the family normalises a view of its input over some axes: layer normalisation
`[rows, D]` over the last one, group normalisation `[N, G, C/G, S]` over the last two, batch
normalisation `[N, C, S]` over the first and the last.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.ops.shared.types import Array

BLOCK, MOST = 1 << 19, 1 << 24  # bytes of one buffer, here and on a device
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
        room = at_a_time(BLOCK, MOST) // wide(dtype).itemsize
        step = []
        for size in reversed(shape):
            step.append(min(size, max(1, room)))
            room //= max(1, step[-1])
        return cls(shape, axes, tuple(reversed(step)), dtype)

    @classmethod
    def channels(cls, x: tuple[int, ...], dtype: np.dtype[Any]) -> Layout:
        """For x normalised over all axes but the second: whole channels, in runs long enough."""
        images, count, size = shape = (x[0], x[1], math.prod(x[2:]))
        room = at_a_time(BLOCK, MOST) // wide(dtype).itemsize
        inner = min(size, room)
        run = -(-256 // max(1, inner))
        some = min(count, max(1, run, room // max(1, inner * images)))
        return cls(
            shape, (0, 2), (min(images, max(1, room // max(1, inner * some))), some, inner), dtype
        )

    @classmethod
    def plain(cls, x: tuple[int, ...], dtype: np.dtype[Any]) -> Layout:
        """For x taken channel by channel, with known statistics."""
        return cls.rows((x[0], x[1], math.prod(x[2:])), (), dtype)

    @property
    def wide(self) -> np.dtype[Any]:
        """The type of sums."""
        return wide(self.dtype)

    @property
    def count(self) -> int:
        """Number of elements per statistic."""
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

    def factor(self, scale: tuple[int, ...]) -> Spec:
        """A buffer for the statistics of one block times a scale of this shape."""
        sizes = zip(self.step, scale, strict=True)
        kept = (n if a not in self.axes or s > 1 else 1 for a, (n, s) in enumerate(sizes))
        return Spec((math.prod(kept),), self.wide)

    @property
    def gathers(self) -> bool:
        """Whether the sums of several lines of a block make one statistic."""
        summed = self.axes[int(self.flat) : -1]
        return any(self.step[a] > 1 for a in summed)

    def blocks(self) -> Iterator[list[Index]]:
        """The parts of each group of blocks that share their statistics; no group is empty."""
        spans = [
            [slice(a, min(a + step, size)) for a in range(0, size, step)] if step else []
            for size, step in zip(self.shape, self.step, strict=True)
        ]
        outer = [[slice(None)] if a in self.axes else s for a, s in enumerate(spans)]
        inner = [s if a in self.axes else [slice(None)] for a, s in enumerate(spans)]
        parts = list(itertools.product(*inner))
        for chosen in itertools.product(*outer) if parts else ():
            yield [
                tuple(part[a] if a in self.axes else span for a, span in enumerate(chosen))
                for part in parts
            ]


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which numbers of `dtype` are summed."""
    return dtype if dtype.itemsize > 2 else np.dtype(np.float32)


def pick(array: Array, index: Index) -> Array:
    """The part of a broadcast array that meets the block at `index`."""
    sizes = zip(index, array.shape, strict=True)
    return array[tuple(slice(None) if n == 1 else i for i, n in sizes)]


def like(buffer: Array, shape: Sequence[int]) -> Array:
    """The beginning of a flat buffer, with a shape."""
    return buffer[: math.prod(shape)].reshape(shape)


def reduced(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """`shape` with `axes` of size one."""
    return tuple(1 if a in axes else n for a, n in enumerate(shape))

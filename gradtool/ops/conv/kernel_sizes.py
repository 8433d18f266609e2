"""The sizes of a convolution, and its split into blocks.

A block is some images, or some rows of one image, such that their columns of window contents stay
in a small buffer whatever the batch is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.operators.windows import Window

LIMIT = 1 << 20  # bytes of columns at a time; more if the weights are larger than that
MOST = 1 << 24  # of them on a device
Block = tuple[int, int, int, int]


@dataclass(frozen=True)
class Convolution:
    """The sizes of `y[N, M, *out] = Σ x[N, C, *in] · w[M, C/G, *kernel]`."""

    x: tuple[int, ...]
    y: tuple[int, ...]
    group: int
    window: Window
    dtype: np.dtype[Any]

    @cached_property
    def wide(self) -> np.dtype[Any]:
        """The type that products are summed in."""
        return self.dtype if self.dtype.itemsize > 2 else np.dtype(np.float32)

    @cached_property
    def positions(self) -> int:
        """Windows per image."""
        return math.prod(self.y[2:])

    @cached_property
    def column(self) -> int:
        """Elements under one window."""
        return self.x[1] * math.prod(self.window.kernel)

    @cached_property
    def weights(self) -> tuple[int, int, int]:
        """The weights as matrices `[G, M/G, C/G · taps]`."""
        return self.group, self.y[1] // self.group, self.column // self.group

    @cached_property
    def image(self) -> tuple[int, ...]:
        """One padded image: as much as the windows cover."""
        return (self.x[1], *self.window.covered(self.y[2:]))

    @cached_property
    def padded(self) -> bool:
        """Whether the windows reach outside of x, or x must be widened."""
        reach = zip(self.image[1:], self.x[2:], strict=True)
        return any(self.window.begin) or self.wide != self.dtype or any(c > s for c, s in reach)

    @cached_property
    def pointwise(self) -> bool:
        """Whether the columns of an image are the image."""
        return self.image[1:] == self.y[2:] == self.x[2:] and self.column == self.x[1]

    @cached_property
    def depthwise(self) -> bool:
        """Whether every channel has a window of its own."""
        return self.group == self.x[1] == self.y[1] and self.group > 1

    @cached_property
    def step(self) -> tuple[int, int]:
        """Images and rows of a block."""
        row = self.column * math.prod(self.y[3:]) * self.wide.itemsize
        limit = max(at_a_time(LIMIT, MOST), math.prod(self.weights) * self.wide.itemsize)
        rows = max(1, min(limit // max(1, row), self.y[2]))
        images = max(1, limit // max(1, row * rows)) if rows == self.y[2] else 1
        return min(images, max(1, self.x[0])), rows

    def blocks(self) -> Iterator[Block]:
        """First and last image, first and last row of each block; none of an empty y."""
        if not math.prod(self.y):
            return
        images, rows = self.step
        for n in range(0, self.x[0], images):
            for r in range(0, self.y[2], rows):
                yield n, min(n + images, self.x[0]), r, min(r + rows, self.y[2])

    @property
    def several(self) -> bool:
        """Whether there is more than one block."""
        return self.step[0] < self.x[0] or self.step[1] < self.y[2]

    @property
    def direct(self) -> bool:
        """Whether a block of y is a matrix where it lies."""
        return self.step[0] == 1 and self.wide == self.dtype

    @property
    def width(self) -> int:
        """Columns of a full block."""
        return self.step[0] * self.step[1] * math.prod(self.y[3:])

    def columns(self) -> Spec:
        """The buffer of columns."""
        return Spec((self.column * self.width,), self.wide)

    def buffer(self) -> Spec:
        """The padded images of a block, empty if x needs none."""
        return Spec((self.step[0], *self.image) if self.padded else (0,), self.wide)

    def products(self) -> Spec:
        """A block of y, empty if it is a matrix where it lies."""
        return Spec((0 if self.direct else self.y[1] * self.width,), self.wide)

    def widened(self) -> Spec:
        """The weights in the wide type, empty if they are."""
        return Spec(self.weights if self.wide != self.dtype else (0,), self.wide)

    def interior(self) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Slices of x within a padded image, and of the part of x covered by windows."""
        inner, outer = [slice(None)], [slice(None)]
        for size, cover, begin in zip(self.x[2:], self.image[1:], self.window.begin, strict=True):
            count = max(0, min(size, cover - begin))
            inner.append(slice(begin, begin + count))
            outer.append(slice(0, count))
        return tuple(inner), tuple(outer)

    def taps(self, rows: tuple[int, int]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Each tap and the elements of a padded image under it in output rows `rows`."""
        spans = [rows, *((0, o) for o in self.y[3:])]
        window = self.window
        for tap in itertools.product(*map(range, window.kernel)):
            where = [slice(None)]
            for t, (a, b), s, d in zip(tap, spans, window.strides, window.dilations, strict=True):
                where.append(slice(a * s + t * d, (b - 1) * s + t * d + 1, s))
            yield tap, tuple(where)

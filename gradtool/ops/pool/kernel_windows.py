"""Pooling by shifted windows: for each tap, the part of the output with it inside of x.

Blocks are some planes of `[N·C, *in]`, so that the output of a block stays in cache.
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
from gradtool.operators.windows import Window
from gradtool.ops.shared.types import Array, Arrays, Index

BLOCK = 1 << 17  # bytes of output at a time
Tap = tuple[tuple[int, ...], Index, Index]
Taps = Sequence[Tap]


@dataclass(frozen=True)
class Pool:
    """The sizes of a pooling from x to y."""

    x: tuple[int, ...]
    y: tuple[int, ...]
    window: Window
    dtype: np.dtype[Any]
    mean: bool = False

    @classmethod
    def of(cls, x: Any, y: Any, attributes: Any, *, mean: bool = False) -> Pool:
        """From the arrays or specs of a node and its attributes; whether it is an average."""
        window = Window.of(attributes["kernel_shape"], x.shape[2:], attributes, pool=True)
        return cls(tuple(x.shape), tuple(y.shape), window, x.dtype, mean)

    @property
    def wide(self) -> np.dtype[Any]:
        """The type of sums."""
        return self.dtype if self.dtype.itemsize > 2 else np.dtype(np.float32)

    @property
    def planes(self) -> int:
        """Images times channels."""
        return self.x[0] * self.x[1]

    @property
    def step(self) -> int:
        """Planes of a block."""
        plane = max(math.prod(self.y[2:]), 1) * self.wide.itemsize
        return min(max(1, self.planes), max(1, at_a_time(BLOCK) // plane))

    def block(self, dtype: Any = None) -> Spec:
        """A buffer for the outputs of a block."""
        return Spec((self.step, *self.y[2:]), np.dtype(dtype or self.wide))

    def image(self, dtype: Any = None) -> Spec:
        """A buffer for the inputs of a block."""
        return Spec((self.step, *self.x[2:]), np.dtype(dtype or self.wide))

    def blocks(self) -> Iterator[slice]:
        """The planes of each block."""
        for first in range(0, self.planes, self.step):
            yield slice(first, min(first + self.step, self.planes))

    def taps(self) -> Iterator[Tap]:
        """Each tap, the outputs whose window has it inside of x, and the elements there."""
        window = self.window
        for tap in itertools.product(*map(self._meeting, range(window.rank))):
            outer, inner = [slice(None)], [slice(None)]
            for axis, t in enumerate(tap):
                first, last, source, stride = self._span(axis, t)
                outer.append(slice(first, last))
                inner.append(slice(source, source + (last - first - 1) * stride + 1, stride))
            if all(o.stop is None or o.stop > o.start for o in outer):
                yield tap, tuple(outer), tuple(inner)

    def seen(self, axis: int) -> int:
        """The elements of x along an axis within reach of windows.

        onnxruntime leaves out of averages what negative pads cut off, and of nothing else.
        """
        return self.x[2 + axis] + (min(0, self.window.end[axis]) if self.mean else 0)

    def _meeting(self, axis: int) -> range:
        """The taps that meet x at all, however large the kernel is."""
        window = self.window
        begin, apart = window.begin[axis], window.dilations[axis]
        last = (self.y[2 + axis] - 1) * window.strides[axis]
        end = (self.seen(axis) - 1 + begin) // apart + 1
        return range(max(0, -((last - begin) // apart)), min(window.kernel[axis], end))

    def _span(self, axis: int, tap: int) -> tuple[int, int, int, int]:
        """First and last output with this tap inside of x, where the first one meets x, stride."""
        window = self.window
        stride = window.strides[axis]
        offset = tap * window.dilations[axis] - window.begin[axis]
        first = max(0, -(offset // stride))
        last = min(self.y[2 + axis], (self.seen(axis) - 1 - offset) // stride + 1)
        return first, max(first, last), first * stride + offset, stride

    def counts(self, *, include_pad: bool) -> list[np.ndarray[Any, Any]]:
        """Number of taps of each window, along each axis: all, or those inside of x.

        A window of `ceil_mode` that reaches beyond the padding has fewer in either case.
        """
        window, found = self.window, []
        for axis, kernel in enumerate(window.kernel):
            starts = np.arange(self.y[2 + axis]) * window.strides[axis] - window.begin[axis]
            low = -window.begin[axis] if include_pad else 0
            high = self.x[2 + axis] + window.end[axis] if include_pad else self.seen(axis)
            before, until = (-((starts - n) // window.dilations[axis]) for n in (low, high))
            found.append(np.clip(until, 0, kernel) - np.clip(before, 0, kernel))
        return found


def planes(x: Array) -> Array:
    """X as `[N·C, *in]`."""
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def rows(x: Array) -> Array:
    """Planes as rows, `[N·C, elements of a plane]`."""
    return x.reshape(x.shape[0] * x.shape[1], math.prod(x.shape[2:]))


def add_windows(xp: Any, taps: Taps, x: Array, y: Array, *, back: bool = False) -> None:
    """`y` = the sums of the windows on a block of x; or `back`, elements of y in windows of x."""
    y.fill(0)
    for _, outer, inner in taps:
        met = y[inner if back else outer]
        xp.add(met, x[outer if back else inner], out=met)


def divide_by_counts(xp: Any, pool: Pool, y: Array, counts: Arrays) -> None:
    """Divide a block of outputs by the number of elements of each window."""
    rank = len(counts)
    scale = 1
    for axis, count in enumerate(counts):
        if count.size and count.min() == count.max():
            scale *= int(count[0])
        else:
            shape = (1,) * (1 + axis) + (-1,) + (1,) * (rank - 1 - axis)
            xp.divide(y, xp.asarray(np.maximum(count, 1).astype(y.dtype)).reshape(shape), out=y)
    if scale > 1:
        xp.divide(y, scale, out=y)

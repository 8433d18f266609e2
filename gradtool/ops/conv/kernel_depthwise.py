"""Convolutions of one channel each, as multiplications and additions of shifted images.

Blocks are a few channels of one image, so that they stay in cache.  Inner loops are made long:
small images are laid out with the channels last; with unit strides an output lies in rows as long
as those of the padded image, so that a shift is one run of the whole image.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.ops.conv.kernel_sizes import Convolution
from gradtool.ops.shared.types import Array, Arrays

BLOCK = 1 << 18  # bytes of one buffer
RUN = 128  # elements of a padded image, from which on dot products of its runs pay


def channels(conv: Convolution) -> int:
    """Channels of a block."""
    plane = max(1, math.prod(conv.image[1:]), conv.positions) * conv.wide.itemsize
    return min(conv.group, max(1, at_a_time(BLOCK) // plane))


def in_runs(conv: Convolution, *, dots: bool) -> bool:
    """Whether outputs lie in rows of the padded image: if they are long, or for dot products."""
    unit = all(s == 1 for s in conv.window.strides)
    long = dots and math.prod(conv.image[1:]) >= RUN
    return unit and (long or channels(conv) < 2 * conv.y[-1])


def channels_last(conv: Convolution, *, dots: bool) -> bool:
    """Whether a run of channels is longer than a row of the image."""
    return not in_runs(conv, dots=dots) and channels(conv) >= 2 * conv.y[-1]


def run_taps(conv: Convolution) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Each tap and the run of a padded image under it."""
    sizes = conv.image[1:]
    pitch = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    length = 1 + sum((o - 1) * p for o, p in zip(conv.y[2:], pitch, strict=True))
    for tap, where in conv.taps((0, conv.y[2])):
        first = sum(span.start * p for span, p in zip(where[1:], pitch, strict=True))
        yield tap, (slice(None), slice(first, first + length))


def blocks(conv: Convolution) -> Iterator[tuple[int, slice]]:
    """Image, and first to last channel of each block."""
    count = channels(conv)
    for n in range(conv.x[0]):
        for c in range(0, conv.group, count):
            yield n, slice(c, min(c + count, conv.group))


@dataclass(frozen=True)
class Workspace:
    """The buffers of one call, channels first in shape, whatever they are in memory.

    `padded` and `grid` are a block of x and of y in images; `image`, `product` and `total` are
    what is multiplied and added.
    """

    conv: Convolution
    padded: Any
    grid: Any
    image: Any
    product: Any
    total: Any
    factors: Any
    taps: tuple[Any, ...]

    @classmethod
    def specs(cls, conv: Convolution, *, dots: bool = False) -> list[Spec]:
        """Specs of the `work` of a call."""
        count, last = channels(conv), channels_last(conv, dots=dots)
        out = conv.image[1:] if in_runs(conv, dots=dots) else conv.y[2:]
        shapes = [(*p, count) if last else (count, *p) for p in (conv.image[1:], out, out)]
        shapes.append((*conv.window.kernel, conv.group))
        return [Spec(shape, conv.wide) for shape in shapes]

    @classmethod
    def of(cls, xp: Any, conv: Convolution, work: Arrays, *, dots: bool = False) -> Workspace:
        """From the buffers of `Room.specs`."""
        image, product, total, factors = work
        image.fill(0)
        total.fill(0)
        if not in_runs(conv, dots=dots):
            if channels_last(conv, dots=dots):
                image, product, total = (xp.moveaxis(b, -1, 0) for b in (image, product, total))
            taps = tuple(conv.taps((0, conv.y[2])))
            return cls(conv, image, total, image, product, total, factors, taps)
        taps = tuple(run_taps(conv))
        _, (_, run) = taps[0]
        grid = total[(slice(None), *(slice(0, o) for o in conv.y[2:]))]
        flat, *rows = (b.reshape(b.shape[0], -1) for b in (image, product, total))
        product, total = (b[:, : run.stop - run.start] for b in rows)
        return cls(conv, image, grid, flat, product, total, factors, taps)

    def weights(self, xp: Any, w: Array) -> Array:
        """The weights as `[*kernel, C, 1, …]`."""
        conv = self.conv
        shaped = w.reshape(conv.group, *conv.window.kernel)
        xp.copyto(self.factors, xp.moveaxis(shaped, 0, -1))
        return self.factors.reshape(*self.factors.shape, *(1,) * (self.product.ndim - 1))

    def take(self, xp: Any, x: Array, n: int, span: slice) -> Array:
        """A block of x with its padding."""
        inner, outer = self.conv.interior()
        count = span.stop - span.start
        xp.copyto(self.padded[:count][inner], x[n, span][outer])
        return self.image[:count]

    def take_shares(self, xp: Any, dy: Array, n: int, span: slice) -> Array:
        """A block of dy."""
        count = span.stop - span.start
        xp.copyto(self.grid[:count], dy[n, span])
        return self.total[:count]


def forward(
    xp: Any, conv: Convolution, x: Array, w: Array, bias: Array | None, y: Array, work: Arrays
) -> None:
    """`y[c] = Σ_t x[c, shifted by t] · w[c, t]`."""
    room = Workspace.of(xp, conv, work)
    weights = room.weights(xp, w)
    for n, span in blocks(conv):
        count = span.stop - span.start
        source, made = room.take(xp, x, n, span), room.total[:count]
        term = made
        for tap, where in room.taps:
            xp.multiply(source[where], weights[tap][span], out=term)
            if term is not made:
                xp.add(made, term, out=made)
            term = room.product[:count]
        if bias is None:
            xp.copyto(y[n, span], room.grid[:count], casting="unsafe")
        else:
            shift = bias[span].reshape(-1, *(1,) * conv.window.rank)
            xp.add(room.grid[:count], shift, out=y[n, span], casting="unsafe")


def backward_input(xp: Any, conv: Convolution, dy: Array, w: Array, x: Array, work: Arrays) -> None:
    """`dx[c, shifted by t] += dy[c] · w[c, t]`."""
    room = Workspace.of(xp, conv, work)
    weights = room.weights(xp, w)
    inner, outer = conv.interior()
    for n, span in blocks(conv):
        count = span.stop - span.start
        shares, target = room.take_shares(xp, dy, n, span), room.image[:count]
        target.fill(0)
        for tap, where in room.taps:
            xp.multiply(shares, weights[tap][span], out=room.product[:count])
            part = target[where]
            xp.add(part, room.product[:count], out=part)
        x[n, span].fill(0)
        xp.copyto(x[n, span][outer], room.padded[:count][inner], casting="unsafe")


def backward_weight(
    xp: Any, conv: Convolution, x: Array, dy: Array, dw: Array, work: Arrays
) -> None:
    """`dw[c, t] = Σ x[c, shifted by t] · dy[c]`."""
    *work, sums = work
    room = Workspace.of(xp, conv, work, dots=True)
    room.factors.fill(0)
    axes = tuple(range(1, room.product.ndim))
    for n, span in blocks(conv):
        count = span.stop - span.start
        source, shares = room.take(xp, x, n, span), room.take_shares(xp, dy, n, span)
        found = sums[:count]
        for tap, where in room.taps:
            if len(axes) == 1:
                lines = source[where][:, None, :], shares[:, :, None]
                xp.matmul(*lines, out=found.reshape(-1, 1, 1))
            else:
                xp.multiply(source[where], shares, out=room.product[:count])
                xp.sum(room.product[:count], axis=axes, out=found)
            part = room.factors[tap][span]
            xp.add(part, found, out=part)
    shaped = dw.reshape(conv.group, *conv.window.kernel)
    xp.copyto(shaped, xp.moveaxis(room.factors, -1, 0), casting="unsafe")

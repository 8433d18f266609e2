"""Normalisation of a view over some of its axes, block by block.

Means come before centred squares, so that nothing cancels.  Sums are in float32 at least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.ops.norm.kernel_layouts import Layout, like, pick, reduced
from gradtool.ops.shared.types import Array, Arrays, Index


@dataclass(frozen=True)
class Workspace:
    """The buffers of one call, and the sums by them.

    Lines are summed by matrix products with ones, which is several times faster than adding.
    """

    xp: Any
    axes: tuple[int, ...]
    flat: bool
    block: Any
    other: Any
    lines: Any
    factor: Any
    mean: Any
    rstd: Any
    ones: Any

    @classmethod
    def of(cls, xp: Any, layout: Layout, work: Arrays) -> Workspace:
        """From the buffers of `Room.specs`."""
        block, other, lines, factor, mean, rstd, ones = work
        ones.fill(1)
        return cls(
            xp, layout.axes, layout.flat, block, other, lines, factor, mean, rstd, ones
        )  # fmt: skip

    @classmethod
    def specs(
        cls,
        layout: Layout,
        scale: tuple[int, ...] | None = None,
        *,
        centre: bool = True,
        products: bool = True,
    ) -> list[Spec]:
        """Specs of the `work` of a call; `scale` is the shape of the scale of the statistics."""
        none, small = Spec((0,), layout.wide), layout.small()
        factor = small if layout.gathers else none
        if scale is not None and scale[-1] == 1:
            factor = layout.factor(scale)
        other, mean = layout.other() if products else none, small if centre else none
        return [layout.block(), other, layout.lines(), factor, mean, small, layout.line()]

    def statistic(self, buffer: Array, shape: Sequence[int]) -> Array:
        """A buffer with a number for each statistic of a block of `shape`."""
        return like(buffer, reduced(shape, self.axes))

    def widened(self, x: Array, buffer: Array) -> Array:
        """A block in the type of sums: itself, or a copy in `buffer`."""
        if x.dtype == buffer.dtype:
            return x
        copied = like(buffer, x.shape)
        self.xp.copyto(copied, x)
        return copied

    def sums(self, x: Array, buffer: Array) -> Array:
        """The sum of each line of a block in the type of sums."""
        if self.flat:
            out = like(buffer, (1, *x.shape[1:-1]))
            return self.xp.matmul(self.ones[: x.shape[0]].reshape(1, -1), x[..., 0], out=out)
        out = like(buffer, x.shape[:-1])
        return self.xp.matmul(x, self.ones[: x.shape[-1]], out=out)

    def products(self, x: Array, y: Array, buffer: Array) -> Array:
        """The sum of `x · y` over each line of two blocks."""
        if self.other.size:
            product = like(self.other, x.shape)
            self.xp.multiply(x, y, out=product)
            return self.sums(product, buffer)
        out = like(buffer, x.shape[:-1])
        self.xp.matmul(x[..., None, :], y[..., :, None], out=out[..., None, None])
        return out

    def add(self, lines: Array, out: Array) -> None:
        """Add a number per line to `out`, summed over its axes of size one."""
        part = out[..., 0]
        axes = tuple(
            a for a, (n, m) in enumerate(zip(part.shape, lines.shape, strict=True)) if n != m
        )
        if axes:
            term = like(self.factor, part.shape)
            self.xp.sum(lines, axis=axes, keepdims=True, out=term)
            lines = term
        self.xp.add(part, lines, out=part)


def moments(
    room: Workspace,
    x: Array,
    layout: Layout,
    parts: Sequence[Index],
    epsilon: float,
    variance: Array | None = None,
) -> tuple[Array, Array]:
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


def scales(
    room: Workspace, x: Array, layout: Layout, parts: Sequence[Index], epsilon: float
) -> Array:
    """1 / root mean square of a group of blocks."""
    rstd = room.statistic(room.rstd, x[parts[0]].shape)
    rstd.fill(0)
    for index in parts:
        part = room.widened(x[index], room.block)
        room.add(room.products(part, part, room.lines), rstd)
    inverse_root(room.xp, rstd, layout.count, epsilon)
    return rstd


def inverse_root(xp: Any, x: Array, count: int, epsilon: float) -> None:
    """`x = 1 / sqrt(x / count + epsilon)`."""
    xp.divide(x, count, out=x)
    xp.add(x, epsilon, out=x)
    xp.sqrt(x, out=x)
    xp.divide(1, x, out=x)


def forward(
    room: Workspace, layout: Layout, x: Array, scale: Array, bias: Array | None, y: Array | None,
    kept: Sequence[Array | None], epsilon: float, *,
    centre: bool = True, variance: Array | None = None,
) -> None:  # fmt: skip
    """`y = (x - mean) · rstd · scale + bias`; `kept` takes mean and rstd if wanted.

    Where y is None, only statistics are computed.  Statistics of nothing are NaN.
    """
    xp, x = room.xp, x.reshape(layout.shape)
    y = None if y is None else y.reshape(layout.shape)
    if not layout.count:
        undefine((*kept, variance))
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
        if y is None:
            continue
        for index in parts:
            n = like(room.block, x[index].shape)
            factor, rest = rstd, scale
            if scale.shape[-1] == 1:
                factor, rest = combined(room, rstd, pick(scale, index)), None
            if centre and len(parts) > 1:
                xp.subtract(x[index], mean, out=n)
            xp.multiply(n if centre else x[index], factor, out=n)
            scaled(xp, n, rest, bias, index, y[index])


def undefine(statistics: Array) -> None:
    """Fill the wanted statistics with NaN."""
    for target in statistics:
        if target is not None:
            target.fill(math.nan)


def combined(room: Workspace, rstd: Array, scale: Array) -> Array:
    """`rstd · scale`, where scale is constant along lines."""
    shape = tuple(max(sizes) for sizes in zip(rstd.shape, scale.shape, strict=True))
    return room.xp.multiply(rstd, scale, out=like(room.factor, shape))


def scaled(
    xp: Any, n: Array, scale: Array | None, bias: Array | None, index: Index, y: Array
) -> None:
    """`y = n · scale + bias`, rounded once."""
    if scale is not None:
        out = y if bias is None else n
        xp.multiply(n, pick(scale, index), out=out, casting="unsafe")
    if bias is not None:
        xp.add(n, pick(bias, index), out=y, casting="unsafe")
    elif scale is None:
        xp.copyto(y, n, casting="unsafe")

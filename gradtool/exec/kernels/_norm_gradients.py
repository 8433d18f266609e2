"""Gradients of normalisation, in the same blocks as the forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradtool.exec.kernels._norms import Room, like, moments, pick, scales


@dataclass(frozen=True)
class Work:
    """The buffers of a gradient: those of the forward pass and some more."""

    room: Room
    third: Any
    given: Any
    lines: Any
    first: Any
    second: Any

    @classmethod
    def of(cls, xp, layout, work):
        """From the buffers of `Work.specs`."""
        count = len(work) - 5
        return cls(Room.of(xp, layout, work[:count]), *work[count:])

    @classmethod
    def specs(cls, layout):
        """What a call needs as `work`."""
        given = layout.block() if layout.wide != layout.dtype else layout.empty()
        small = layout.small()
        return [*Room.specs(layout), layout.block(), given, layout.lines(), small, small]

    def statistics(self, x, layout, parts, kept, epsilon, *, centre=True):
        """Mean and rstd of a group of blocks: as they were kept, or computed again."""
        room, (mean, rstd) = self.room, kept
        if rstd is None:
            if centre:
                return moments(room, x, layout, parts, epsilon)
            return None, scales(room, x, layout, parts, epsilon)
        made = []
        for buffer, value in ((room.mean, mean), (room.rstd, rstd)):
            target = room.statistic(buffer, x[parts[0]].shape)
            room.xp.copyto(target, pick(value.reshape(layout.statistics), parts[0]))
            made.append(target)
        return made

    def centred(self, x, mean):
        """`x - mean` of a block."""
        out = like(self.room.block, x.shape)
        if mean is None:
            self.room.xp.copyto(out, x)
        else:
            self.room.xp.subtract(x, mean, out=out)
        return out


def rows(xp, layout, x, scale, kept, dy, dx, sums, epsilon, work, *, centre=True):
    """Over the last axis, along which scale varies: with `dn = dy · scale`,

        dx = rstd · (dn - mean(dn) - n · mean(dn · n))

    On `[rows, D]`; `sums` take `Σ dy · n` and `Σ dy` (None where not wanted).
    """  # noqa: D415
    work = Work.of(xp, layout, work)
    room, count = work.room, layout.count
    x, dy = x.reshape(layout.shape), dy.reshape(layout.shape)
    for parts in layout.blocks():
        mean, rstd = work.statistics(x, layout, parts, kept, epsilon, centre=centre)
        m1, m2 = (room.statistic(b, x[parts[0]].shape) for b in (work.first, work.second))
        m1.fill(0)
        m2.fill(0)
        for index in parts:
            c, g = work.centred(x[index], mean), room.widened(dy[index], work.given)
            product, weights = like(work.third, c.shape), scale[index[1]]
            xp.multiply(c, g, out=product)
            _add_rows(room, rstd, product, sums[0], index)
            _add_rows(room, None, g, sums[1], index)
            for matrix, m in ((g, m1), (product, m2)):
                line = like(room.lines, (c.shape[0],))
                xp.matmul(matrix, weights, out=line)
                room.add(line, m)
        if dx is None:
            continue
        xp.divide(m1, count if centre else float("inf"), out=m1)
        for _ in range(2):
            xp.multiply(m2, rstd, out=m2)
        xp.divide(m2, count, out=m2)
        for index in parts:
            c, dn = like(room.block, x[index].shape), like(work.third, x[index].shape)
            if len(parts) > 1:
                c = work.centred(x[index], mean)
            xp.multiply(dy[index], scale[index[1]], out=dn)
            xp.multiply(c, m2, out=c)
            xp.subtract(dn, c, out=dn)
            if centre:
                xp.subtract(dn, m1, out=dn)
            xp.multiply(dn, rstd, out=dx.reshape(layout.shape)[index], casting="unsafe")


def _add_rows(room, weights, matrix, out, index):
    """Add the sum of the rows of a matrix, each with its weight, to a part of `out`."""
    if out is not None:
        count = matrix.shape[0]
        weights = like(room.other, (1, count)) if weights is None else weights.reshape(1, count)
        if weights.base is room.other:
            weights.fill(1)
        term = room.ones_like_line(matrix.shape[1])
        room.xp.matmul(weights, matrix, out=term)
        part = out[index[1]]
        room.xp.add(part, term[0], out=part)


def planes(xp, layout, x, scale, kept, dy, dx, sums, epsilon, work):
    """Over the last axis and some more, scale being constant along the last one.

        dx = rstd · (dn - mean(dn) - n · mean(dn · n))

    `scale` and `sums`, which take `Σ dy · n` and `Σ dy` (None where not wanted), have the rank of
    the view, with axes of size one where they are broadcast.
    """

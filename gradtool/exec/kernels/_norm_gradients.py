"""Gradients of normalisation, in the same blocks as the forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradtool.exec.kernels._norm_layouts import like, pick
from gradtool.exec.kernels._norms import Room, combined, moments, scales
from gradtool.program import Spec


@dataclass(frozen=True)
class Work:
    """The buffers of a gradient: those of the forward pass and some more."""

    room: Room
    third: Any
    given: Any
    lines: Any
    first: Any
    second: Any
    ones: Any
    line: Any
    scale: Any
    sums: tuple[Any, ...]

    @classmethod
    def of(cls, xp, layout, work):
        """From the buffers of `for_rows` or `for_planes`."""
        *shared, third, given, lines, first, second, ones, line, scale, ds, db = work
        for buffer, value in ((ones, 1), (ds, 0), (db, 0)):
            buffer.fill(value)
        room = Room.of(xp, layout, shared)
        return cls(room, third, given, lines, first, second, ones, line, scale, (ds, db))

    @classmethod
    def for_rows(cls, layout, *, known, centre=True):
        """What `rows` needs as `work`; statistics may be `known`."""
        narrow = layout.wide != layout.dtype
        block, small, none = layout.block(), layout.small(), Spec((0,), layout.wide)
        sums = Spec(layout.shape[1:], layout.wide)
        given, copied = (block, sums) if narrow else (none, none)
        room = Room.specs(layout, centre=centre, products=not known)
        line = layout.line()
        return [*room, block, given, none, small, small, small, line, copied, sums, sums]

    @classmethod
    def for_planes(cls, layout, scale, *, slopes):
        """What `planes` needs as `work`; `scale` is a shape, `slopes` whether dx is wanted."""
        block, small, none = layout.block(), layout.small(), Spec((0,), layout.wide)
        sums = Spec(tuple(scale), layout.wide)
        narrow = layout.wide != layout.dtype
        third, given = block if slopes and narrow else none, block if narrow else none
        room = Room.specs(layout, scale)
        return [*room, third, given, layout.lines(), small, small, none, none, none, sums, sums]

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

    def centred(self, x, mean, *, ready=False):
        """`x - mean` of a block, which may be ready since the mean was computed."""
        out = like(self.room.block, x.shape)
        if ready:
            return out
        if mean is None:
            self.room.xp.copyto(out, x)
        else:
            self.room.xp.subtract(x, mean, out=out)
        return out

    def pair(self, shape):
        """Two zeros for each statistic of a block of `shape`."""
        made = self.room.statistic(self.first, shape), self.room.statistic(self.second, shape)
        for m in made:
            m.fill(0)
        return made

    def add_rows(self, weights, matrix, out):
        """Add the sum of the rows of a matrix, each with its weight, to the vector `out`."""
        term = like(self.line, (1, matrix.shape[1]))
        self.room.xp.matmul(weights.reshape(1, -1), matrix, out=term)
        self.room.xp.add(out, term[0], out=out)

    def finish(self, out):
        """Round the sums to the outputs that are wanted."""
        for target, s in zip(out, self.sums, strict=False):
            if target is not None:
                self.room.xp.copyto(target, s.reshape(target.shape), casting="unsafe")


def rows(xp, layout, x, scale, kept, dy, out, epsilon, work, *, centre=True):
    """Over the last axis, along which scale varies, on `[rows, D]`.

    dx = rstd · (dn - mean(dn) - n · mean(dn · n))  with  dn = dy · scale
    dscale = Σ dy · n        dbias = Σ dy
    """
    work = Work.of(xp, layout, work)
    room, dx = work.room, out[0]
    x, dy, scale = x.reshape(layout.shape), dy.reshape(layout.shape), scale.reshape(-1)
    dx = None if dx is None else dx.reshape(layout.shape)
    scale = room.widened(scale, work.scale.reshape(-1)) if work.scale.size else scale
    for parts in layout.blocks():
        mean, rstd = work.statistics(x, layout, parts, kept, epsilon, centre=centre)
        m1, m2 = work.pair(x[parts[0]].shape)
        for index in parts:
            span, ready = index[1], centre and kept[1] is None and len(parts) == 1
            c = work.centred(x[index], mean, ready=ready)
            g = room.widened(dy[index], work.given)
            product = like(work.third, c.shape)
            xp.multiply(c, g, out=product)
            work.add_rows(rstd, product, work.sums[0][span])
            work.add_rows(work.ones[: c.shape[0]], g, work.sums[1][span])
            for matrix, m in ((g, m1), (product, m2)):
                room.add(xp.matmul(matrix, scale[span], out=like(room.lines, c.shape[:1])), m)
        if dx is None:
            continue
        xp.divide(m1, layout.count, out=m1)
        _over(xp, m2, rstd, layout.count)
        xp.multiply(m2, rstd, out=m2)
        for index in parts:
            c, dn = like(room.block, x[index].shape), like(work.third, x[index].shape)
            if len(parts) > 1:
                c = work.centred(x[index], mean)
            xp.multiply(c, m2, out=c)
            xp.multiply(dy[index], scale[index[1]], out=dn)
            xp.subtract(dn, c, out=dn)
            if centre:
                xp.subtract(dn, m1, out=dn)
            xp.multiply(dn, rstd, out=dx[index], casting="unsafe")
    work.finish(out[1:])


def planes(xp, layout, x, scale, kept, dy, out, epsilon, work, shape):
    """Over the last axis, along which scale is constant, and some more.

        dx = rstd · (dn - mean(dn) - n · mean(dn · n))  with  dn = dy · scale
        dscale = Σ dy · n        dbias = Σ dy

    `shape` is that of scale with the rank of the view.
    """
    work = Work.of(xp, layout, work)
    room, dx = work.room, out[0]
    x, dy = x.reshape(layout.shape), dy.reshape(layout.shape)
    dx = None if dx is None else dx.reshape(layout.shape)
    ds, db = (s.reshape(shape) for s in work.sums)
    for parts in layout.blocks():
        mean, rstd = work.statistics(x, layout, parts, kept, epsilon)
        m1, m2 = work.pair(x[parts[0]].shape)
        for index in parts:
            c = work.centred(x[index], mean, ready=kept[1] is None and len(parts) == 1)
            g = room.widened(dy[index], work.given)
            b, s = room.sums(g, work.lines), room.products(c, g, room.lines)
            xp.multiply(s, rstd[..., 0], out=s)
            room.add(s, pick(ds, index))
            room.add(b, pick(db, index))
            if dx is not None:
                for lines, m in ((b, m1), (s, m2)):
                    xp.multiply(lines, pick(scale.reshape(shape), index)[..., 0], out=lines)
                    room.add(lines, m)
        if dx is None:
            continue
        _over(xp, m1, rstd, layout.count)
        _over(xp, m2, rstd, layout.count)
        xp.multiply(m2, rstd, out=m2)
        for index in parts:
            c = like(room.block, x[index].shape)
            dn = like(work.third, c.shape) if work.third.size else dx[index]
            if len(parts) > 1:
                c = work.centred(x[index], mean)
            factor = combined(room, rstd, pick(scale.reshape(shape), index))
            xp.multiply(c, m2, out=c)
            xp.multiply(dy[index], factor, out=dn)
            xp.subtract(dn, c, out=dn)
            xp.subtract(dn, m1, out=dx[index], casting="unsafe")
    work.finish(out[1:])


def _over(xp, m, rstd, count):
    """`m = m · rstd / count`."""
    xp.multiply(m, rstd, out=m)
    xp.divide(m, count, out=m)

"""Gradients of normalisation, in the same blocks as the forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.norm.kernel_forward import Workspace, combined, moments, scales
from gradtool.ops.norm.kernel_layouts import Layout, like, pick
from gradtool.ops.shared.types import Array, Arrays, Index

View = Callable[..., Layout]  # of x and the parameters, and of attributes
Spread = Callable[[Array | Spec, Layout], tuple[int, ...]]  # the shape of a parameter in the view


def register(
    name: str, operands: str, view: View, spread: Spread | None = None, *, centre: bool = True
) -> None:
    """Register the kernel of a gradient, which has these `operands`.

    It goes by rows, or with `spread`, the shape of scale, by planes.  Without a scale, the
    gradient of scale alone is wanted.
    """
    names = operands.split()

    def work(*given: Spec | None, out: Sequence[Spec | None], **attributes: Any) -> list[Spec]:
        named = dict(zip(names, given, strict=False))
        scale = named.get("scale")
        layout = view(named["x"], scale, **attributes)
        if spread is None:
            return Work.for_rows(layout, known=named.get("rstd") is not None, centre=centre)
        slopes = scale is not None and out[0] is not None
        return Work.for_planes(layout, spread(scale, layout), slopes=slopes)

    @kernel(f"ai.gradtool::{name}", work=work, may_inplace=(len(names) - 1, 0) * ("scale" in names))
    def run(
        xp: Any, *given: Array, out: Sequence[Array | None], work: Arrays,
        epsilon: float = 0.0, **attributes: Any,
    ) -> None:  # fmt: skip
        """`(dx, dscale, dbias)`, from statistics of the forward pass or without them."""
        named = dict(zip(names, given, strict=True))
        scale = named.get("scale")
        layout = view(named["x"], scale, **attributes)
        own = Work.of(xp, layout, work)
        kept = named.get("mean"), named.get("rstd")
        x, dy = (named[v].reshape(layout.shape) for v in ("x", "dy"))
        wanted = out if "scale" in named else (None, *out)
        if spread is None:
            rows(own, layout, x, scale, kept, dy, wanted, epsilon, centre=centre)
        else:
            shape = spread(scale, layout)
            planes(own, layout, x, scale, kept, dy, wanted, epsilon, shape)


@dataclass(frozen=True)
class Work:
    """The buffers of a gradient: those of the forward pass and some more."""

    room: Workspace
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
    def of(cls, xp: Any, layout: Layout, work: Arrays) -> Work:
        """From the buffers of `for_rows` or `for_planes`."""
        *shared, third, given, lines, first, second, ones, line, scale, ds, db = work
        for buffer, value in ((ones, 1), (ds, 0), (db, 0)):
            buffer.fill(value)
        room = Workspace.of(xp, layout, shared)
        return cls(room, third, given, lines, first, second, ones, line, scale, (ds, db))

    @classmethod
    def for_rows(cls, layout: Layout, *, known: bool, centre: bool = True) -> list[Spec]:
        """Specs of the `work` of `rows`; statistics may be `known`."""
        narrow = layout.wide != layout.dtype
        block, small, none = layout.block(), layout.small(), Spec((0,), layout.wide)
        sums = Spec(layout.shape[1:], layout.wide)
        given, copied = (block, sums) if narrow else (none, none)
        room = Workspace.specs(layout, centre=centre, products=not known)
        line = layout.line()
        return [*room, block, given, none, small, small, small, line, copied, sums, sums]

    @classmethod
    def for_planes(cls, layout: Layout, scale: tuple[int, ...], *, slopes: bool) -> list[Spec]:
        """Specs of the `work` of `planes`; `scale` is a shape, `slopes` whether dx is wanted."""
        block, small, none = layout.block(), layout.small(), Spec((0,), layout.wide)
        sums = Spec(tuple(scale), layout.wide)
        narrow = layout.wide != layout.dtype
        third, given = block if slopes and narrow else none, block if narrow else none
        room = Workspace.specs(layout, scale)
        return [*room, third, given, layout.lines(), small, small, none, none, none, sums, sums]

    def statistics(
        self, x: Array, layout: Layout, parts: Sequence[Index], kept: Arrays, epsilon: float, *,
        centre: bool = True,
    ) -> Arrays:  # fmt: skip
        """Mean and rstd of a group of blocks: as they were kept, or computed again."""
        room, (mean, rstd) = self.room, kept
        if rstd is None:
            if centre:
                return moments(room, x, layout, parts, epsilon)
            return None, scales(room, x, layout, parts, epsilon)
        made: list[Array] = []
        for buffer, value in ((room.mean, mean), (room.rstd, rstd)):
            target = room.statistic(buffer, x[parts[0]].shape)
            room.xp.copyto(target, pick(value.reshape(layout.statistics), parts[0]))
            made.append(target)
        return made

    def centred(self, x: Array, mean: Array | None, *, ready: bool = False) -> Array:
        """`x - mean` of a block, which may be ready since the mean was computed."""
        out = like(self.room.block, x.shape)
        if ready:
            return out
        if mean is None:
            self.room.xp.copyto(out, x)
        else:
            self.room.xp.subtract(x, mean, out=out)
        return out

    def pair(self, shape: Sequence[int]) -> tuple[Array, Array]:
        """Two zeros for each statistic of a block of `shape`."""
        made = self.room.statistic(self.first, shape), self.room.statistic(self.second, shape)
        for m in made:
            m.fill(0)
        return made

    def add_rows(self, weights: Array, matrix: Array, out: Array) -> None:
        """Add the sum of the rows of a matrix, each with its weight, to the vector `out`."""
        term = like(self.line, (1, matrix.shape[1]))
        self.room.xp.matmul(weights.reshape(1, -1), matrix, out=term)
        self.room.xp.add(out, term[0], out=out)

    def take_means(self, x: Array, count: int, out: Array) -> None:
        """The mean over `count` numbers of each statistic of a block."""
        out.fill(0)
        self.room.add(self.room.sums(x, self.lines), out)
        self.room.xp.divide(out, count, out=out)

    def finish(self, out: Sequence[Array | None]) -> None:
        """Round the sums to the wanted outputs."""
        for target, s in zip(out, self.sums, strict=False):
            if target is not None:
                self.room.xp.copyto(target, s.reshape(target.shape), casting="unsafe")


def rows(
    own: Work, layout: Layout, x: Array, scale: Array, kept: Arrays, dy: Array, out: Arrays,
    epsilon: float, *, centre: bool = True,
) -> None:  # fmt: skip
    """Over the last axis, along which scale varies, on `[rows, D]`.

    dx = rstd · (dn - mean(dn) - n · mean(dn · n))  with  dn = dy · scale
    dscale = Σ dy · n        dbias = Σ dy
    """
    room, dx, scale = own.room, out[0], scale.reshape(-1)
    xp, dx = room.xp, None if dx is None else dx.reshape(layout.shape)
    scale = room.widened(scale, own.scale.reshape(-1)) if own.scale.size else scale
    for parts in layout.blocks():
        mean, rstd = own.statistics(x, layout, parts, kept, epsilon, centre=centre)
        m1, m2 = own.pair(x[parts[0]].shape)
        for index in parts:
            span, ready = index[1], centre and kept[1] is None and len(parts) == 1
            c = own.centred(x[index], mean, ready=ready)
            g = room.widened(dy[index], own.given)
            product = like(own.third, c.shape)
            xp.multiply(c, g, out=product)
            own.add_rows(rstd, product, own.sums[0][span])
            own.add_rows(own.ones[: c.shape[0]], g, own.sums[1][span])
            for matrix, m in ((g, m1), (product, m2)):
                room.add(xp.matmul(matrix, scale[span], out=like(room.lines, c.shape[:1])), m)
        if dx is None:
            continue
        xp.divide(m1, layout.count, out=m1)
        _over(xp, m2, rstd, layout.count)
        xp.multiply(m2, rstd, out=m2)
        for index in parts:
            c, dn = like(room.block, x[index].shape), like(own.third, x[index].shape)
            if len(parts) > 1:
                c = own.centred(x[index], mean)
            xp.multiply(c, m2, out=c)
            xp.multiply(dy[index], scale[index[1]], out=dn)
            xp.subtract(dn, c, out=dn)
            if centre:
                xp.subtract(dn, m1, out=dn)
            xp.multiply(dn, rstd, out=dx[index], casting="unsafe")
    own.finish(out[1:])


def planes(
    own: Work, layout: Layout, x: Array, scale: Array, kept: Arrays, dy: Array, out: Arrays,
    epsilon: float, shape: Sequence[int],
) -> None:  # fmt: skip
    """Over the last axis, along which scale is constant, and some more.

        dx = rstd · (dn - mean(dn) - n · mean(dn · n))  with  dn = dy · scale
        dscale = Σ dy · n        dbias = Σ dy

    `shape` is that of scale with the rank of the view.
    """
    room, dx = own.room, out[0]
    xp, dx = room.xp, None if dx is None else dx.reshape(layout.shape)
    ds, db = (s.reshape(shape) for s in own.sums)
    for parts in layout.blocks():
        mean, rstd = own.statistics(x, layout, parts, kept, epsilon)
        m1, m2 = own.pair(x[parts[0]].shape)
        for index in parts:
            c = own.centred(x[index], mean, ready=kept[1] is None and len(parts) == 1)
            g = room.widened(dy[index], own.given)
            b, s = room.sums(g, own.lines), room.products(c, g, room.lines)
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
            made = dx[index]
            dn = like(own.third, c.shape) if own.third.size else made
            if len(parts) > 1:
                c = own.centred(x[index], mean)
            factor = combined(room, rstd, pick(scale.reshape(shape), index))
            xp.multiply(c, m2, out=c)
            xp.multiply(dy[index], factor, out=dn)
            xp.subtract(dn, c, out=dn)
            if len(parts) == 1:  # as dn is rounded: the sum of dx is zero
                own.take_means(dn, layout.count, m1)
            xp.subtract(dn, m1, out=made, casting="unsafe")
    own.finish(out[1:])


def _over(xp: Any, m: Array, rstd: Array, count: int) -> None:
    """`m = m · rstd / count`."""
    xp.multiply(m, rstd, out=m)
    xp.divide(m, count, out=m)

"""Gradients of normalisation, in the same blocks as the forward pass."""

from __future__ import annotations

from gradtool.exec.kernels._norms import like, moments, pick, reduced, scales, total


def saved(xp, x, layout, parts, statistics, epsilon, buffers, *, centre):
    """Mean and rstd of a group of blocks: as they were kept, or computed again."""
    if statistics[1] is None:
        if centre:
            return moments(xp, x, layout, parts, epsilon, buffers)
        return None, scales(xp, x, layout, parts, epsilon, buffers)
    shape = reduced(x[parts[0]].shape, layout.axes)
    made = [like(b, shape) for b in buffers[2:4]]
    for target, value in zip(made, statistics, strict=True):
        if value is not None:
            xp.copyto(target, pick(value.reshape(layout.statistics), parts[0]))
    return (made[0] if centre else None), made[1]


def normalised(xp, x, mean, rstd, out):
    """`out = (x - mean) · rstd`."""
    if mean is None:
        xp.multiply(x, rstd, out=out)
    else:
        xp.subtract(x, mean, out=out)
        xp.multiply(out, rstd, out=out)


def accumulate(xp, x, target, index, work):
    """Add x, summed to the shape of the part of `target` that meets it."""
    part = pick(target, index)
    axes = tuple(a for a, n in enumerate(part.shape) if n == 1)
    term = like(work, part.shape)
    total(xp, x, axes, term)
    xp.add(part, term, out=part)


def rows(xp, layout, x, scale, statistics, dy, dx, sums, epsilon, buffers, *, centre=True):
    """Over the last axes: `dx = rstd · (dn - mean(dn) - n · mean(dn · n))` with `dn = dy · scale`.

    `sums` are the gradients of scale and bias, `Σ dy · n` and `Σ dy`, in the wide type and of the
    rank of the view (None where not wanted).  Buffers: three blocks, five of statistics, and one
    for a part of the sums.
    """
    first, second, third, mean_, rstd_, s1, s2, s3, part = buffers
    x, dy = x.reshape(layout.shape), dy.reshape(layout.shape)
    dx = None if dx is None else dx.reshape(layout.shape)
    own = (first, second, mean_, rstd_, s3)
    for parts in layout.blocks():
        mean, rstd = saved(xp, x, layout, parts, statistics, epsilon, own, centre=centre)
        shape = reduced(x[parts[0]].shape, layout.axes)
        m1, m2, term = like(s1, shape), like(s2, shape), like(s3, shape)
        m1.fill(0)
        m2.fill(0)
        for index in parts:
            n, p, dn = (like(b, x[index].shape) for b in (first, second, third))
            normalised(xp, x[index], mean, rstd, n)
            xp.multiply(dy[index], n, out=p)
            if sums[0] is not None:
                accumulate(xp, p, sums[0], index, part)
            if sums[1] is not None:
                accumulate(xp, dy[index], sums[1], index, part)
            if dx is None:
                continue
            xp.multiply(dy[index], pick(scale, index), out=dn)
            if centre:
                total(xp, dn, layout.axes, term)
                xp.add(m1, term, out=m1)
            xp.multiply(dn, n, out=p)
            total(xp, p, layout.axes, term)
            xp.add(m2, term, out=m2)
        if dx is None:
            continue
        xp.divide(m1, layout.count, out=m1)
        xp.divide(m2, layout.count, out=m2)
        for index in parts:
            n, dn = like(first, x[index].shape), like(third, x[index].shape)
            if len(parts) > 1:
                normalised(xp, x[index], mean, rstd, n)
                xp.multiply(dy[index], pick(scale, index), out=dn)
            xp.multiply(n, m2, out=n)
            xp.subtract(dn, n, out=dn)
            if centre:
                xp.subtract(dn, m1, out=dn)
            xp.multiply(dn, rstd, out=dx[index], casting="unsafe")


def channels(xp, layout, x, scale, statistics, dy, out, epsilon, buffers):
    """Over all axes but the second: with `db = Σ dy` and `ds = Σ dy · n` over them,

        dx = scale · rstd · (dy - db / count - n · ds / count)

    Buffers: two blocks, five of statistics.
    """
    first, second, mean_, rstd_, s1, s2, s3 = buffers
    dx, *sums = out
    x, dy = x.reshape(layout.shape), dy.reshape(layout.shape)
    dx = None if dx is None else dx.reshape(layout.shape)
    own = (first, second, mean_, rstd_, s3)
    for parts in layout.blocks():
        mean, rstd = saved(xp, x, layout, parts, statistics, epsilon, own, centre=True)
        shape = reduced(x[parts[0]].shape, layout.axes)
        ds, db, term = like(s1, shape), like(s2, shape), like(s3, shape)
        ds.fill(0)
        db.fill(0)
        for index in parts:
            n, p = like(first, x[index].shape), like(second, x[index].shape)
            normalised(xp, x[index], mean, rstd, n)
            xp.multiply(n, dy[index], out=p)
            total(xp, p, layout.axes, term)
            xp.add(ds, term, out=ds)
            total(xp, dy[index], layout.axes, term)
            xp.add(db, term, out=db)
        for target, value in zip(sums, (ds, db), strict=False):
            if target is not None:
                xp.copyto(
                    pick(target.reshape(layout.statistics), parts[0]), value, casting="unsafe"
                )
        if dx is None:
            continue
        xp.divide(ds, layout.count, out=ds)
        xp.divide(db, layout.count, out=db)
        xp.multiply(pick(scale.reshape(layout.statistics), parts[0]), rstd, out=term)
        for index in parts:
            n, p = like(first, x[index].shape), like(second, x[index].shape)
            if len(parts) > 1:
                normalised(xp, x[index], mean, rstd, n)
            xp.multiply(n, ds, out=n)
            xp.subtract(dy[index], n, out=p)
            xp.subtract(p, db, out=p)
            xp.multiply(p, term, out=dx[index], casting="unsafe")

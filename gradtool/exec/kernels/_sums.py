"""Reductions without temporaries, in float32 for half-precision types."""

from __future__ import annotations

import math

import numpy as np

from gradtool.program import Spec

ROWS = 512  # longest run of values added one after the other
BLOCK = 32768  # elements: a few float32 buffers of them stay in the second-level cache


def accumulator(dtype):
    """The type in which sums of `dtype` are taken: float32 at least, for floats."""
    dtype = np.dtype(dtype)
    return np.dtype(np.float32) if dtype.itemsize < 4 and dtype.kind not in "iub" else dtype


def reduced_axes(rank, axes, noop):
    """The axes that an ONNX reduction runs over: all if none are named, unless `noop`."""
    named = () if axes is None else tuple(sorted(int(a) % rank for a in np.ravel(axes)))
    return named if named or noop else tuple(range(rank))


def kept(shape, axes):
    """`shape` with size one along `axes`."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def reduce_into(xp, function, x, axes, out, **options):
    """`out = function(x, axes)`, `out` having the kept or the dropped axes."""
    out = out.reshape(kept(x.shape, axes))
    if axes:
        function(x, axis=axes, out=out, keepdims=True, **options)
    else:
        xp.copyto(out, x)


def _long_axis(shape, axes):
    """The axis whose values would be added one after the other in a long run, or None."""
    if not axes or (len(shape) - 1) in axes:
        return None
    longest = max(axes, key=lambda a: shape[a])
    return longest if shape[longest] > ROWS else None


def sum_work(x, axes, out):
    """The work arrays of `sum_into`: a wide total, and a partial sum for long columns."""
    wide = accumulator(out.dtype)
    work = [Spec(out.shape, wide)] if wide != out.dtype else []
    if _long_axis(x.shape, axes) is not None:
        work.append(Spec(out.shape, wide))
    return work


def sum_into(xp, x, axes, out, work, then=None):
    """`out = Σ x` over `axes`; `then(total)` may change the wide total before it is rounded.

    Long columns are added in blocks of rows, each block by itself: the rounding error is that of
    the number of blocks, not of rows.
    """
    wide = accumulator(out.dtype)
    work = list(work)
    total = work.pop(0) if wide != out.dtype else out
    axis = _long_axis(x.shape, axes)
    if axis is None:
        reduce_into(xp, xp.sum, x, axes, total, dtype=total.dtype)
    else:
        partial = work.pop(0)
        block = [slice(None)] * x.ndim
        for start in range(0, x.shape[axis], ROWS):
            block[axis] = slice(start, start + ROWS)
            target = partial if start else total
            reduce_into(xp, xp.sum, x[tuple(block)], axes, target, dtype=wide)
            if start:
                xp.add(total, partial, out=total)
    if then is not None:
        then(total)
    if total is not out:
        xp.copyto(out, total, casting="unsafe")


def blocks(shape, size=BLOCK):
    """Tuples of slices, one per axis, that cut an array into blocks of about `size` elements."""
    axis, rest = 0, math.prod(shape[1:])
    while axis < len(shape) - 1 and rest > size:
        axis += 1
        rest //= max(shape[axis], 1)
    whole = [slice(None)] * len(shape)
    if not shape:
        yield (...,)
        return
    step = max(1, size // max(rest, 1))
    for lead in np.ndindex(*shape[:axis]):
        whole[:axis] = [slice(i, i + 1) for i in lead]
        for start in range(0, shape[axis], step):
            whole[axis] = slice(start, start + step)
            yield tuple(whole)


def mapped_work(x, out, wide):
    """The work arrays of `mapped_sum`: one block of terms, one of sums, and a wide total."""
    size = min(BLOCK, math.prod(x.shape))
    total = [] if np.dtype(out.dtype) == wide else [Spec(out.shape, wide)]
    return [Spec((size,), wide), Spec((size,), wide), *total]


def mapped_sum(xp, x, axes, terms, out, work):
    """`Σ f(x)` over `axes` in a wide array of kept axes, which is `out` unless that is narrow.

    `terms(index, t)` writes f of the block of x at `index` to `t`.
    """
    first, second, *wide = work
    total = (wide[0] if wide else out).reshape(kept(x.shape, axes))
    total.fill(0)
    for index in blocks(x.shape):
        shape = x[index].shape
        term = first[: math.prod(shape)].reshape(shape)
        terms(index, term)
        place = tuple(slice(None) if i in axes else s for i, s in enumerate(index))
        target = total[place]
        if axes:
            partial = second[: math.prod(target.shape)].reshape(target.shape)
            xp.sum(term, axis=axes, out=partial, keepdims=True, dtype=partial.dtype)
        else:
            partial = term
        xp.add(target, partial, out=target)
    return total

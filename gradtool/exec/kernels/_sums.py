"""Reductions without temporaries, in float32 for half-precision types."""

from __future__ import annotations

import numpy as np

from gradtool.program import Spec

ROWS = 512  # longest run of values added one after the other


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

"""Composites of the layout family: gradients of windows, borders and resampling.

They get the *shape* of x, not x: nothing of the forward pass is kept.
"""

from __future__ import annotations

from gradtool.functions import composite
from gradtool.functions._scatter import add_positions, positions
from gradtool.functions._sizes import dims, integers


def like_shape(dy, *inputs, **attributes):
    """The gradient has the type of dy and the shape that the first integer input holds."""
    shape = next(i for i in inputs if i is not None)
    return [(dims(shape), dy.dtype)]


@composite("SliceGrad", shapes=like_shape)
def slice_grad(op, dy, shape, starts, ends, axes=None, steps=None):
    """`dx[starts:ends:steps] = dy`, zero elsewhere.

    With unit steps that is a border of zeros; else positions are sliced as x was.
    """
    ranks = range(len(dy.shape)) if axes is None else integers(axes)
    if ranks is None or set(integers(steps) or [0]) != {1} and steps is not None:
        source = op.Slice(positions(op, shape), starts, ends, axes, steps)
        return add_positions(op, dy, source, shape)

    ranks = [axis % len(dy.shape) for axis in ranks][: starts.shape[0]]
    sizes = op.Gather(shape, ranks)
    starts = op.cast(starts, shape.dtype)
    first = op.Where(op.Less(starts, 0), starts + sizes, starts)
    first = op.Min(op.Max(first, 0), sizes)
    after = sizes - first - op.Gather(op.shape(dy), ranks)
    return op.Pad(dy, op.Concat(first, after, axis=0), None, ranks)


@composite("PadGrad", shapes=like_shape)
def pad_grad(op, dy, shape, pads, axes=None, *, mode):
    """`dx[i] = Σ dy[j]` over the places `j` of the border and the middle that repeat `x[i]`."""
    return add_positions(op, dy, op.Pad(positions(op, shape), pads, None, axes, mode=mode), shape)

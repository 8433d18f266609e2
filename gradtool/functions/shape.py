"""Composites of the layout family: gradients of windows, borders and resampling.

They get the *shape* of x, not x: nothing of the forward pass is kept.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import onnx_ir as ir

from gradtool.functions import _storage, composite  # noqa: F401 - it registers
from gradtool.functions._scatter import add_positions, positions
from gradtool.functions._sizes import array, dims, integers
from gradtool.resampling import taps


def like_shape(dy, shape, *others, **attributes):
    """The type of dy and the shape of x."""
    return [(dims(shape), dy.dtype)]


@composite("SliceGrad", shapes=like_shape)
def slice_grad(op, dy, shape, starts, ends, axes=None, steps=None):
    """`dx[starts:ends:steps] = dy`, zero elsewhere.

    With unit steps that is a border of zeros; else positions are sliced as x was.
    """
    ranks = range(len(dy.shape)) if axes is None else integers(axes)
    unit = steps is None or set(integers(steps) or [0]) == {1}
    if ranks is None or not unit:
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


def _columns_shape(dy, block, *, dilations=None, pads=None, strides=None):
    sizes = dy.shape[2:]
    rank = len(sizes)
    dilations, strides, pads = (
        dilations or [1] * rank,
        strides or [1] * rank,
        pads or [0] * 2 * rank,
    )
    blocks = 1
    for a, b in enumerate(dims(block)):
        reach = dilations[a] * (b - 1) + 1
        blocks *= (sizes[a] + pads[a] + pads[rank + a] - reach) // strides[a] + 1
    return [([dy.shape[0], dy.shape[1] * math.prod(dims(block)), blocks], dy.dtype)]


@composite("Col2ImGrad", shapes=_columns_shape)
def col2im_grad(op, dy, block, *, dilations=None, pads=None, strides=None):
    """`dx[n, ck, b]` is element k of block b of channel c: a strided window on dy for each k."""
    rank = len(dy.shape) - 2
    axes = list(range(2, 2 + rank))
    dilations, strides, pads = (
        dilations or [1] * rank,
        strides or [1] * rank,
        pads or [0] * 2 * rank,
    )
    block = integers(block)
    dy = op.Pad(dy, pads, None, axes)
    last = [d * (b - 1) for d, b in zip(dilations, block, strict=True)]
    parts = []
    for offset in itertools.product(*map(range, block)):
        start = [o * d for o, d in zip(offset, dilations, strict=True)]
        end = [s - n if s != n else 2**31 - 1 for s, n in zip(start, last, strict=True)]
        window = op.Slice(dy, start, end, axes, strides)
        parts.append(op.Reshape(window, [0, 0, 1, -1]))
    joined = op.concat(parts, 2)
    return op.Reshape(joined, op.Concat([0, -1], _part(op, op.Shape(joined), 3), axis=0))


@composite("ResizeGrad", shapes=like_shape)
def resize_grad(op, dy, shape, roi=None, scales=None, sizes=None, *, axes=None, **attributes):
    """Resize is linear along each axis, `y = M x`, and so `dx = Mᵀ dy`.

    M is what Resize makes of the unit matrix.  Where elements are only repeated, dx sums dy.
    """
    axes = list(range(len(dy.shape))) if axes is None else [a % len(dy.shape) for a in axes]
    factors = None if array(scales) is None else array(scales).tolist()
    repeated = _repetitions(factors, roi, attributes)
    if repeated:
        return _sum_repetitions(op, dy, shape, dict(zip(axes, repeated, strict=True)))
    have = dims(shape)
    for i, axis in enumerate(axes):
        if (
            have[axis] == dy.shape[axis]
            and not (factors and factors[i] != 1)
            and array(roi) is None
        ):
            continue
        matrix = _matrix(op, i, axis, shape, dy, (roi, scales, sizes), axes, attributes)
        last = len(dy.shape) - 1
        dy = op.swap_axes(op.MatMul(op.swap_axes(dy, axis, last), matrix), axis, last)
    return dy


def _repetitions(factors, roi, attributes):
    """How often each axis is repeated, if all that a Resize does is known to be repetition."""
    if (
        not factors
        or any(f != int(f) or f < 1 for f in factors)
        or attributes.get("mode") == "linear"
    ):
        return None
    have = [4] * len(factors)
    want = [int(4 * f) for f in factors]
    plan = taps(have, want, array(roi), np.asarray(factors), **attributes)
    return [int(f) for f in factors] if all(step.repeats for step in plan) else None


def _sum_repetitions(op, dy, shape, factors):
    pieces = []
    summed = []
    for axis in range(len(dy.shape)):
        pieces.append(op.Slice(shape, [axis], [axis + 1], [0]))
        if factors.get(axis, 1) > 1:
            summed.append(len(pieces))
            pieces.append(op.constant([factors[axis]]))
    if not summed:
        return dy
    return op.sum(op.Reshape(dy, op.Concat(*pieces, axis=0)), summed)


def _matrix(op, i, axis, shape, dy, inputs, axes, attributes):
    """The matrix `[places, elements]` of a Resize along `axis`, the i-th of `axes`."""
    roi, scales, sizes = inputs
    if attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch" and scales is None:
        plan = taps(dims(shape), dy.shape, array(roi), None, array(sizes), axes=axes, **attributes)
        step = next((s for s in plan if s.axis == axis), None)
        size = dims(shape)[axis]
        return op.constant(
            (np.eye(size) if step is None else step.matrix(size)).astype(dy.dtype.numpy())
        )
    wide = dy.dtype if dy.dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT
    size = _part(op, shape, axis)
    numbers = op.Range(op.constant(0), op.Squeeze(size, [0]), op.constant(1))
    unit = op.cast(op.Equal(op.Unsqueeze(numbers, [1]), numbers), wide)
    if roi is not None:
        none, all_ = (op.constant(np.full(1, n, roi.dtype.numpy())) for n in (0, 1))
        roi = _joined(op, _part(op, roi, i), none, _part(op, roi, len(axes) + i), all_)
    if scales is not None:
        scales = _joined(op, _part(op, scales, i), op.constant(np.ones(1, np.float32)))
        sizes = None
    else:
        sizes = _joined(op, _part(op, sizes, i), size)
    options = {k: v for k, v in attributes.items() if k != "keep_aspect_ratio_policy"}
    options["extrapolation_value"] = 0.0
    return op.cast(op.Resize(unit, roi, scales, sizes, **options), dy.dtype)


def _part(op, vector, index):
    """Element `index` of a vector, as a vector."""
    known = array(vector)
    return (
        op.slice(vector, 0, index, index + 1) if known is None else op.constant(known[index:][:1])
    )


def _joined(op, *vectors):
    """Vectors end to end: a constant if all are."""
    known = [array(v) for v in vectors]
    if any(k is None for k in known):
        return op.Concat(*vectors, axis=0)
    return op.constant(np.concatenate(known))

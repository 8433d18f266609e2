"""The gradient of Resize in standard operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import composite
from gradtool.graph.constants import array
from gradtool.graph.typed import Dim, Tensor, as_tensor, ints
from gradtool.operators.resampling import common_scale, taps
from gradtool.ops.shared.symbolic_sizes import dims, like_shape, part

# At this size a nearest Resize by a whole number repeats, or it does at none but 1.
SAMPLE = 4


@composite("ResizeGrad", shapes=like_shape)
def resize_grad(
    op: Builder, dy: Tensor, shape: Tensor, roi: Tensor | None = None, scales: Tensor | None = None,
    sizes: Tensor | None = None, *, axes: Sequence[int] | None = None, **attributes: Any,
) -> Tensor:  # fmt: skip
    """Resize is linear along each axis, `y = M x`, and so `dx = Mᵀ dy`.

    M is the Resize of the unit matrix.  Where elements are only repeated, dx sums dy.
    """
    last = len(dy.shape) - 1
    axes = list(range(last + 1)) if axes is None else [a % (last + 1) for a in axes]
    if attributes.get("coordinate_transformation_mode") != "tf_crop_and_resize":
        roi = None
    known = array(scales)
    factors = [None] * len(axes) if known is None else known.tolist()
    repeated = None if roi is not None or known is None else _repetitions(known, attributes)
    if repeated:
        return _sum_repetitions(op, dy, shape, dict(zip(axes, repeated, strict=True)))
    kept = [_same(a, b) for a, b in zip(dims(shape), dy.shape, strict=True)]
    if all(kept) and roi is None:
        return dy
    idle = None if scales is None else _idle(op, dy, shape, kept)
    for i, (axis, factor) in enumerate(zip(axes, factors, strict=True)):
        if roi is None and kept[axis] and (scales is None or factor == 1):
            continue
        matrix = _matrix(op, i, axis, shape, dy, (roi, scales, sizes, idle), axes, attributes)
        dy = op.swap_axes(op.MatMul(op.swap_axes(dy, axis, last), matrix), axis, last)
    return dy


def _same(a: Dim, b: Dim) -> bool | None:
    """Whether two sizes are equal; None if unknown."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return True if a == b and not isinstance(a, int) and a.value is not None else None


def _repetitions(factors: np.ndarray[Any, Any], attributes: Mapping[str, Any]) -> list[int] | None:
    """Repetitions of each axis, or None unless the Resize is known to only repeat."""
    if any(f != int(f) or f < 1 for f in factors):
        return None
    if attributes.get("mode", "nearest") != "nearest":
        return None
    have = [SAMPLE] * len(factors)
    want = [int(SAMPLE * f) for f in factors]
    plan = taps(have, want, None, factors, **attributes)
    return [int(f) for f in factors] if all(step.repeats for step in plan) else None


def _sum_repetitions(op: Builder, dy: Tensor, shape: Tensor, factors: Mapping[int, int]) -> Tensor:
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


def _idle(op: Builder, dy: Tensor, shape: Tensor, kept: Sequence[bool | None]) -> Tensor:
    """The scale of an axis of one element: 2 where any axis of the Resize changes, else 1.

    A Resize that keeps every size copies, whatever its scales are.  Beside this axis, the unit
    matrix is copied along a kept axis just where the Resize copied.
    """
    if False in kept or all(kept):
        return op.constant(np.asarray([1.0 if all(kept) else 2.0], np.float32))
    changed = op.cast(op.Not(op.Equal(shape, op.shape(dy))), ir.DataType.FLOAT)
    return op.ReduceMax(changed, keepdims=1) + 1.0


def _matrix(
    op: Builder, i: int, axis: int, shape: Tensor, dy: Tensor, inputs: Sequence[Tensor | None],
    axes: Sequence[int], attributes: Mapping[str, Any],
) -> Tensor:  # fmt: skip
    """The matrix `[places, elements]` of a Resize along `axis`, the i-th of `axes`.

    A policy's one scale is that of no axis alone, and what makes the matrix has one axis: it is a
    constant then.  Of a region that a run computes, places depend on sizes alone, not on scales.
    """
    roi, scales, sizes, idle = inputs
    policy = attributes.get("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch" and scales is None:
        have = dims(shape)
        scale = common_scale(ints([have[a] for a in axes]), array(sizes), policy)
        if scale != 1 and (roi is None or array(roi) is not None):
            return _known_matrix(op, axis, have, dy, (roi, sizes), axes, attributes)
        sizes = op.constant(ints([dy.shape[a] for a in axes]))
    size = part(op, shape, axis)
    numbers = op.Range(op.constant(0), op.Squeeze(size, [0]), op.constant(1))
    unit = op.Equal(op.Unsqueeze(numbers, [1, 2, 3]), op.Unsqueeze(numbers, [1]))
    wide = dy.dtype if dy.dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT
    one = op.constant([1])
    if roi is not None:
        whole, cut = op.constant(np.ones(1, roi.dtype.numpy())), len(axes)
        none = op.constant(np.zeros(1, roi.dtype.numpy()))
        start, end = part(op, roi, i), part(op, roi, cut + i)
        roi = _joined(op, none, none, start, none, whole, whole, end, whole)
    if scales is None:
        sizes = _joined(op, size, one, part(op, as_tensor(sizes), i), one)
    else:
        full = op.constant(np.ones(2, np.float32))
        scales, sizes = _joined(op, full, part(op, scales, i), as_tensor(idle)), None
    options = {k: v for k, v in attributes.items() if k != "keep_aspect_ratio_policy"}
    options["extrapolation_value"] = 0.0
    shown = op.Resize(op.cast(unit, wide), roi, scales, sizes, **options)
    shown = op.Squeeze(shown if scales is None else op.slice(shown, 3, 0, 1), [1, 3])
    return op.cast(op.Transpose(shown, perm=[1, 0]), dy.dtype)


def _known_matrix(
    op: Builder, axis: int, have: Sequence[Dim], dy: Tensor, inputs: Sequence[Tensor | None],
    axes: Sequence[int], attributes: Mapping[str, Any],
) -> Tensor:  # fmt: skip
    """The matrix of a Resize whose sizes are known, as a constant."""
    roi, sizes = map(array, inputs)
    plan = taps(ints(have), ints(dy.shape), roi, None, sizes, axes=axes, **attributes)
    step = next((s for s in plan if s.axis == axis), None)
    matrix = np.eye(ints(have)[axis]) if step is None else step.matrix()
    return op.constant(matrix.astype(dy.dtype.numpy()))


def _joined(op: Builder, *vectors: Tensor) -> Tensor:
    """Vectors end to end: a constant if all are."""
    known = [array(v) for v in vectors]
    if any(k is None for k in known):
        return op.Concat(*vectors, axis=0)
    return op.constant(np.concatenate(known))

"""Scales of quantisation: for a whole tensor, along an axis, or in blocks of an axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.graph.specs import Spec
from gradtool.ops.shared.blocks import aligned
from gradtool.ops.shared.blocks import block_size as of_blocks
from gradtool.ops.shared.types import Array, DType, Index


def parts(
    x: Array | Spec, scale: Array | Spec, axis: int, block_size: int
) -> Iterator[tuple[Index, tuple[int, ...], Index, tuple[int, ...]]]:
    """`(index of x, its shape, index of scale, its shape)`: such that the second broadcasts.

    The last block of an axis may be shorter than the others.
    """
    shape = tuple(x.shape)
    if math.prod(scale.shape) == 1 and len(scale.shape) <= 1:
        yield (), shape, (), (1,) * len(shape)
    elif not block_size:
        axis %= len(shape)
        yield (), shape, (), (1,) * axis + (shape[axis],) + (1,) * (len(shape) - axis - 1)
    else:
        axis %= len(shape)
        whole, rest = divmod(shape[axis], block_size)
        lead = (slice(None),) * axis
        for start, count, size in ((0, whole, block_size), (whole, int(rest > 0), rest)):
            if count:
                first = start * block_size
                chosen = (*lead, slice(first, first + count * size))
                split = (*shape[:axis], count, size, *shape[axis + 1 :])
                scales = (*shape[:axis], count, 1, *shape[axis + 1 :])
                yield chosen, split, (*lead, slice(start, start + count)), scales


def pieces(
    x: Array, y: Array, scale: Array, zero: Array | None, axis: int, block_size: int,
    types: Sequence[Any] = (None, np.float32),
) -> Iterator[tuple[Array, Array, Array, Array | None]]:  # fmt: skip
    """Blocks `(y, x, scale, zero)` that fit the second-level cache.

    `types` are those in which scale (None: its own) and zero are wanted.
    """
    scale = scale if types[0] is None else scale.astype(types[0], copy=False)
    zero = None if zero is None else zero.astype(types[1])
    for index, shape, of_scale, scales in parts(x, scale, axis, block_size):
        given = [x[index].reshape(shape), scale[of_scale].reshape(scales)]
        if zero is not None:
            given.append(zero[of_scale].reshape(scales))
        for part, values in aligned(np, y[index].reshape(shape), given):
            yield part, *values, *[None] * (3 - len(values))


def largest_piece(x: Spec, scale: Spec, *, axis: int = 1, block_size: int = 0, **_: Any) -> int:
    """Number of elements of the largest of the `pieces`."""
    found = parts(x, scale, axis, block_size)
    by = ((shape, Spec(scales, scale.dtype)) for _, shape, _, scales in found)
    return max((of_blocks(shape, (s,)) for shape, s in by), default=0)


def precision_of(scale: Spec, precision: int) -> DType:
    """The type of the quotient: as asked for, else that of the scale."""
    return np.dtype(ir.DataType(precision).numpy()) if precision else np.dtype(scale.dtype)


def is_integer(dtype: DType) -> bool:
    """Whether a quantised type holds integers."""
    return "int" in dtype.name


def limits(dtype: DType) -> tuple[float, float]:
    """The least and the greatest number of a quantised type."""
    import ml_dtypes

    found = ml_dtypes.iinfo(dtype) if is_integer(dtype) else ml_dtypes.finfo(dtype)
    return float(found.min), float(found.max)

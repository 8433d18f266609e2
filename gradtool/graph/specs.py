"""Shape and type of an array, and the static knowledge of those of a value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.graph.predicates import is_tensor


@dataclass(frozen=True, slots=True)
class Spec:
    """The `shape` of an array and the `dtype` of its elements."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Bytes of the array when its elements lie without gaps."""
        return math.prod(self.shape) * self.dtype.itemsize


def contiguous(spec: Spec) -> tuple[int, ...]:
    """Byte strides of an array whose elements lie in C order without gaps."""
    strides, step = [], spec.dtype.itemsize
    for size in reversed(spec.shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_contiguous(spec: Spec, strides: tuple[int, ...]) -> bool:
    """Whether strides are of C order, sizes of one aside."""
    pairs = zip(spec.shape, strides, contiguous(spec), strict=True)
    return all(size == 1 or a == b for size, a, b in pairs)


def spec_of(value: ir.Value) -> Spec | None:
    """The spec of a value; None of strings, sequences and data-dependent sizes."""
    shape, dtype = value.shape, value.dtype
    if shape is None or dtype is None or dtype == ir.DataType.STRING:
        return None
    if not is_tensor(value) or not shape.is_static():
        return None
    return Spec(shape.numpy(), np.dtype(dtype.numpy()))


def least_of(value: ir.Value) -> Spec | None:
    """The known spec of a tensor of data-dependent shape: its type, its rank, some sizes."""
    if value.shape is None or value.dtype is None or not is_tensor(value):
        return None
    if value.shape.is_static() or value.dtype == ir.DataType.STRING:
        return None
    sizes = tuple(d if isinstance(d, int) else 0 for d in value.shape)
    return Spec(sizes, np.dtype(value.dtype.numpy()))

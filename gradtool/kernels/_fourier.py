"""Discrete Fourier transforms of real pairs, by the array library's own FFT."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.kernels._sums import accumulator
from gradtool.kernels.types import Array, DType


def complex_of(xp: Any, x: Array) -> Array:
    """An array whose last axis holds (real, imaginary), or real alone, as numbers."""
    wide = x.astype(accumulator(x.dtype), copy=False)
    if wide.shape[-1] == 1:
        return wide[..., 0]
    return xp.ascontiguousarray(wide).view(np.result_type(wide.dtype, np.complex64))[..., 0]


def pairs_of(xp: Any, z: Array, dtype: DType) -> Array:
    """Complex numbers as (real, imaginary) on a last axis, in a real `dtype`."""
    z = xp.ascontiguousarray(z)[..., None]
    return z.view(z.real.dtype).astype(dtype, copy=False)


def length_of(x: Array | Spec, length: Array | None, axis: int, *, halved: int) -> int:
    """The length of a transform: as given, else that of x; `halved` if x is one-sided."""
    if length is not None:
        return int(np.ravel(length)[0])
    size: int = x.shape[axis]
    return 2 * (size - 1) if halved else size


def transform_bytes(x: Spec, out: Spec) -> int:
    """Bytes of the complex numbers that a transform goes through."""
    size = 2 * max(math.prod(x.shape), math.prod(out.shape)) * accumulator(x.dtype).itemsize
    return 3 * size

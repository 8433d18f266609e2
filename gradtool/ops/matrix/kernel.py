"""Square matrices: determinant and identity."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.ops.kernels import kernel
from gradtool.ops.shared.sums import accumulator
from gradtool.ops.shared.types import Array


@kernel("Det", temporaries=lambda x: 2 * x.bytes)
def det(xp: Any, x: Array) -> Array:
    """The determinant of the last two axes."""
    wide = x.astype(accumulator(x.dtype), copy=False)
    return xp.asarray(xp.linalg.det(wide)).astype(x.dtype)


@kernel("EyeLike")
def eye_like(xp: Any, x: Array, *, dtype: int | None = None, k: int = 0) -> Array:
    """Ones on the k-th diagonal of a matrix of the shape of x, else zeros."""
    chosen = x.dtype if dtype is None else np.dtype(ir.DataType(dtype).numpy())
    return xp.eye(*x.shape, k, dtype=chosen)


@kernel("ai.gradtool::DetGrad", temporaries=lambda x: 6 * x.bytes)
def det_grad(xp: Any, x: Array, dy: Array) -> Array:
    """`dx = dy · cofactor(x)`, from singular values: of `x = u s v` it is `± u (Π other s) v`."""
    u, s, v = xp.linalg.svd(x.astype(accumulator(x.dtype), copy=False))
    others = xp.ones_like(s)
    for i in range(s.shape[-1]):
        others[..., i] = xp.delete(s, i, axis=-1).prod(axis=-1)
    sign = xp.linalg.det(u) * xp.linalg.det(v) * dy
    return ((u * (others * sign[..., None])[..., None, :]) @ v).astype(x.dtype, copy=False)

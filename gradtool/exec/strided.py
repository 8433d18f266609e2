"""Products of matrices on a CUDA device by cuBLAS, read and written where they lie.

CuPy copies an operand of a stack that is not contiguous, and a result that is not.  cuBLAS takes
matrices whose rows or whose columns lie without gaps, so far apart as one likes, and stacks of
them at equal distances; other operands are a few such stacks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradtool.ops.shared.types import Array

NORMAL, TRANSPOSED = 0, 1  # cublasOperation_t
TYPES = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}


class Matrix(NamedTuple):
    """Layout of a matrix: `pitch` elements from row to row, or from column to column."""

    by_column: bool
    pitch: int


def matrix(array: Array) -> Matrix | None:
    """Layout of the matrices of a stack; None if neither rows nor columns are without gaps."""
    rows, columns = array.shape[-2:]
    down, right = (s // array.itemsize for s in array.strides[-2:])
    if columns == 1 or right == 1:
        pitch = columns if rows == 1 else down
        return Matrix(False, pitch) if pitch >= columns else None
    if rows == 1 or down == 1:
        return Matrix(True, right) if right >= rows else None
    return None


class Products:
    """`matmul(a, b, out)` by the functions of `library`, cuBLAS, or as `otherwise` does it.

    `handle` gives that of the library, and `address` where an array begins.
    """

    def __init__(
        self,
        library: Any,
        handle: Callable[[], int],
        address: Callable[[Array], int],
        otherwise: Callable[..., Any],
    ) -> None:
        self._library, self._handle, self._address = library, handle, address
        self._otherwise = otherwise
        self._numbers = {t: (np.ones((), t), np.zeros((), t)) for t in TYPES}

    def matmul(self, a: Array, b: Array, *, out: Array | None = None) -> Array:
        """`out = a @ b`, of matrices, of stacks of them, or of vectors, as numpy has them."""
        if out is None or {a.dtype, b.dtype} != {out.dtype} or out.dtype not in TYPES:
            return self._otherwise(a, b, out=out)
        left, right, made = a, b, out
        if right.ndim == 1:
            right, made = right[:, None], made[..., None]
        if left.ndim == 1:
            left, made = left[None, :], made[..., None, :]
        how = matrix(made)
        if how is None or matrix(left) is None or matrix(right) is None:
            return self._otherwise(a, b, out=out)
        if not left.shape[-1]:
            out.fill(0)
        elif how.by_column:
            self._multiply(right.swapaxes(-1, -2), left.swapaxes(-1, -2), made.swapaxes(-1, -2))
        else:
            self._multiply(left, right, made)
        return out

    def _multiply(self, a: Array, b: Array, c: Array) -> None:
        """Rows of `c` lie without gaps: in cuBLAS's eyes, columns of its transpose `bᵀ aᵀ`."""
        lead = c.shape[:-2]
        if not c.size:
            return
        shapes = [matrix(x) for x in (b, a, c)]
        stacks = [_distances(x, lead) for x in (b, a, c)]
        outer, count, inner = _stacks(lead, stacks)
        sizes = c.shape[-1], c.shape[-2], a.shape[-1]
        for place in itertools.product(*map(range, lead[:outer])):
            starts = [
                self._address(x) + x.itemsize * sum(map(math.prod, zip(place, s, strict=False)))
                for x, s in zip((b, a, c), stacks, strict=True)
            ]
            self._call(c.dtype, sizes, shapes, starts, inner, count)  # type: ignore[arg-type]

    def _call(
        self,
        dtype: np.dtype[Any],
        sizes: tuple[int, int, int],
        shapes: Sequence[Matrix],
        starts: Sequence[int],
        steps: Sequence[int],
        count: int,
    ) -> None:
        one, zero = (number.ctypes.data for number in self._numbers[dtype])
        (x, y, z), (p, q, r), (s, t, u) = shapes, starts, steps
        how = [TRANSPOSED if each.by_column else NORMAL for each in (x, y)]
        given = self._handle(), *how, *sizes, one
        if count == 1:
            gemm = getattr(self._library, f"{TYPES[dtype]}gemm")
            gemm(*given, p, x.pitch, q, y.pitch, zero, r, z.pitch)
        else:
            gemm = getattr(self._library, f"{TYPES[dtype]}gemmStridedBatched")
            gemm(*given, p, x.pitch, s, q, y.pitch, t, zero, r, z.pitch, u, count)


def _distances(array: Array, lead: tuple[int, ...]) -> list[int]:
    """Elements between matrices along each axis of a stack, zero where they are repeated."""
    own = zip(array.shape[:-2], array.strides[:-2], strict=True)
    found = [0 if size == 1 else step // array.itemsize for size, step in own]
    return [0] * (len(lead) - len(found)) + found


def _stacks(
    lead: Sequence[int], stacks: Sequence[Sequence[int]]
) -> tuple[int, int, tuple[int, ...]]:
    """Number of leading axes to loop over, and the stack of equal distances behind them.

    A stack is a number of matrices, and the distance between two of each operand.
    """
    axis, count, steps = len(lead), 1, (0,) * len(stacks)
    while axis:
        size, here = lead[axis - 1], tuple(s[axis - 1] for s in stacks)
        if size > 1 and count > 1 and here != tuple(step * count for step in steps):
            break
        if size > 1:
            steps = here if count == 1 else steps
            count *= size
        axis -= 1
    return axis, count, steps


class OnDevice:
    """CuPy, but for the products of matrices."""

    def __init__(self, cupy: Any) -> None:
        from cupy_backends.cuda.libs import cublas  # type: ignore[import-not-found]

        self._cupy = cupy
        handle = cupy.cuda.device.get_cublas_handle
        products = Products(cublas, handle, lambda a: int(a.data.ptr), cupy.matmul)
        self.matmul = products.matmul

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cupy, name)
        setattr(self, name, found)
        return found

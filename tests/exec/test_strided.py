"""Products by cuBLAS where operands lie, held to numpy with a library that does as cuBLAS says."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from gradtool.exec.strided import Products, matrix

TYPES = {"s": np.float32, "d": np.float64}


def by_column(address, dtype, rows, columns, pitch):
    """A matrix at an address whose columns lie without gaps, `pitch` elements apart."""
    size = (columns - 1) * pitch + rows
    number = np.ctypeslib.as_ctypes_type(dtype)
    flat = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(number)), (size,))
    step = flat.itemsize
    return as_strided(flat, (rows, columns), (step, step * pitch))


class Library:
    """The functions of cuBLAS that are called, on the host."""

    def __init__(self):
        self.calls = []
        for letter, dtype in TYPES.items():
            setattr(self, f"{letter}gemm", self._one(dtype))
            setattr(self, f"{letter}gemmStridedBatched", self._many(dtype))

    def _one(self, dtype):
        def gemm(_handle, ta, tb, m, n, k, _one, a, lda, b, ldb, _zero, c, ldc):
            self.calls.append(1)
            self._multiply(dtype, ta, tb, m, n, k, a, lda, b, ldb, c, ldc)

        return gemm

    def _many(self, dtype):
        def gemm(_handle, ta, tb, m, n, k, _one, a, lda, sa, b, ldb, sb, _zero, c, ldc, sc, count):
            self.calls.append(count)
            size = np.dtype(dtype).itemsize
            for i in range(count):
                places = a + i * sa * size, b + i * sb * size, c + i * sc * size
                self._multiply(
                    dtype, ta, tb, m, n, k, places[0], lda, places[1], ldb, places[2], ldc
                )

        return gemm

    @staticmethod
    def _multiply(dtype, ta, tb, m, n, k, a, lda, b, ldb, c, ldc):
        left = by_column(a, dtype, k, m, lda).T if ta else by_column(a, dtype, m, k, lda)
        right = by_column(b, dtype, n, k, ldb).T if tb else by_column(b, dtype, k, n, ldb)
        by_column(c, dtype, m, n, ldc)[...] = left @ right


class Elsewhere(Exception):
    """What is left to CuPy."""


def otherwise(*_, **__):
    raise Elsewhere


def products(library):
    return Products(library, lambda: 7, lambda a: a.ctypes.data, otherwise)


@st.composite
def operands(draw):
    """Stacks of matrices, or vectors, in whatever order of axes, with gaps and repeats."""
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    lead = draw(st.lists(st.integers(1, 3), max_size=3))
    rows, depth, columns = (draw(st.integers(0 if i == 1 else 1, 4)) for i in range(3))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))

    def laid(shape, *, whole=False):
        """An array of a shape that lies in some order, perhaps with gaps between its rows."""
        if not shape:
            return np.zeros((), dtype)
        axes = list(range(len(shape)))
        if not draw(st.booleans()) and len(shape) > 1:
            axes = draw(st.permutations(axes))
        padded = [shape[a] + draw(st.integers(0, 1 - whole)) for a in axes]
        array = rng.standard_normal(padded).astype(dtype)
        cut = array[tuple(slice(0, shape[a]) for a in axes)]
        return cut.transpose(np.argsort(axes))

    def stack(inner):
        kept = [n if draw(st.booleans()) else 1 for n in lead]
        drop = draw(st.integers(0, len(kept)))
        return laid((*kept[drop:], *inner))

    a = laid((depth,)) if not lead and draw(st.booleans()) else stack((rows, depth))
    b = laid((depth,)) if draw(st.booleans()) else stack((depth, columns))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    return a, b, laid(expected.shape), expected


@pytest.mark.exhaustive
@settings(max_examples=trials(600), deadline=None)
@given(operands())
def test_products_are_those_of_numpy_wherever_operands_lie(case):
    a, b, out, expected = case
    try:
        found = products(Library()).matmul(a, b, out=out)
    except Elsewhere:
        left, right = a[None, :] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
        made = out[..., None] if b.ndim == 1 else out
        made = made[..., None, :] if a.ndim == 1 else made
        assert None in (matrix(left), matrix(right), matrix(made))
    else:
        assert found is out
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("a", "b", "calls"),
    [
        ((8, 5, 3), (3, 4), [8]),
        ((2, 8, 5, 3), (2, 8, 3, 4), [16]),
        ((2, 8, 5, 3), (3, 4), [16]),
        ((2, 1, 5, 3), (1, 8, 3, 4), [8, 8]),
        ((5, 3), (3, 4), [1]),
        ((5, 3), (3,), [1]),
        ((3,), (3,), [1]),
    ],
)
def test_stacks_at_equal_distances_are_one_call(a, b, calls):
    library = Library()
    left, right = np.ones(a, np.float32), np.ones(b, np.float32)
    products(library).matmul(left, right, out=np.empty((left @ right).shape, np.float32))

    assert library.calls == calls


@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.complex64])
def test_other_types_are_left_to_cupy(dtype):
    with pytest.raises(Elsewhere):
        products(Library()).matmul(*np.ones((2, 3, 3), dtype), out=np.empty((3, 3), dtype))


def test_what_is_to_be_made_anew_is_left_to_cupy():
    with pytest.raises(Elsewhere):
        products(Library()).matmul(*np.ones((2, 3, 3), np.float32))

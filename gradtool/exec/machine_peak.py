"""Peak rates of this processor: a product of matrices, and a copy larger than caches, measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from gradtool.native import gemm, strided
from gradtool.operators.kernel_sets import LIBRARY, Kernels
from gradtool.program.roofline import Reach

SIDE = 768  # of the matrices
COPIED = 2**25  # bytes
REPEATS = 5


def reach(kernels: Kernels = "numpy") -> Reach:
    """By the kernels asked for, the best of a few runs; about a fifth of a second."""
    a, b, c = (np.ones((SIDE, SIDE), np.float32) for _ in range(3))
    source, target = (np.ones(COPIED // 4, np.float32) for _ in range(2))
    product: Callable[[], object] = partial(np.matmul, a, b, out=c)
    copy: Callable[[], object] = partial(np.copyto, target, source)
    if kernels in LIBRARY:
        work = np.empty(gemm.work(1, SIDE, SIDE, SIDE) // 4, np.float32)
        product, copy = gemm.gemm(a, b, c, work), strided.copy(source, target)
    return Reach(2 * SIDE**3 / _least(product), 2 * COPIED / _least(copy))


def _least(call: Callable[[], object]) -> float:
    """The least seconds of a few runs."""
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return min(taken)

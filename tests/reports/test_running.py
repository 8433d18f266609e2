"""Numbers about results, which take no memory of the size of a result."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from gradtool.exec.results import Result
from gradtool.reports.running import BLOCK, gradients_table


def shown(array):
    """The norm and the largest number of a gradient, as a table has them."""
    ((_, _, norm, largest),) = gradients_table(Result(None, {}, {"x": array}, None, 0.0)).rows
    return float(norm), float(largest)


@pytest.mark.parametrize("size", [0, 1, 7, BLOCK, BLOCK + 1, 3 * BLOCK - 5])
def test_norm_and_largest_are_those_of_all_elements(size):
    array = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    norm, largest = shown(array)

    assert norm == pytest.approx(np.linalg.norm(array.astype(np.float64)), rel=1e-3)
    assert largest == pytest.approx(np.abs(array).max(initial=0.0), rel=1e-3)


def test_a_nan_is_not_hidden_by_another_block():
    array = np.ones(2 * BLOCK, np.float32)
    array[3] = np.nan

    assert np.isnan(shown(array)).all()


def test_a_large_result_is_not_copied():
    array = np.ones(16 * BLOCK, np.float32)
    tracemalloc.start()
    shown(array)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < array.nbytes // 2

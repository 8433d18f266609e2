import numpy as np
import pytest
from conftest import sampled
from native_calls import each_instruction_set, needs_library, normal, run

from gradtool.native import reduce

pytestmark = [needs_library, *each_instruction_set]
SIZES = (0, 1, 2, 3, 7, 16, 17, 33, 127, 129, 500, 4097, 9000)


@pytest.mark.parametrize("seed", sampled(range(120)))
def test_a_sum_is_that_of_float64(seed):
    rng = np.random.default_rng(seed)
    sizes = (1, 1, 1)
    while not 0 < (count := int(np.prod(sizes := rng.choice(SIZES, 3)))) < 2**18 and count:
        pass
    sizes = tuple(map(int, sizes))
    x, factor = normal(rng, *sizes), float(rng.uniform(0.1, 2))
    (y,) = run(
        lambda y, work: reduce.reduce_sum(
            x, y, work, sizes, factor=factor
        ),
        (sizes[0], sizes[2]), work=reduce.work(sizes), inputs=(x,),
    )  # fmt: skip
    exact = x.sum(axis=1, dtype=float) * factor

    np.testing.assert_allclose(y, exact, atol=4e-6 * max(1, sizes[1]) ** 0.5, rtol=1e-6)


@pytest.mark.parametrize("seed", sampled(range(60)))
def test_passes_reduce_any_axes(seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 9, rng.integers(1, 5, rng.integers(1, 6)))
    axes = tuple(a for a in range(x.ndim) if rng.integers(2))
    y = x
    for before, n, after in reduce.passes(x.shape, axes):
        y = y.reshape(before, n, after).sum(axis=1)

    assert np.array_equal(y.ravel(), x.sum(axis=axes).ravel())

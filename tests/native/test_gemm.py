import numpy as np
import pytest
from conftest import sampled
from native_calls import each_instruction_set, needs_library, normal, relative_error, run

from gradtool.native import gemm

pytestmark = [needs_library, *each_instruction_set]
LENGTHS = (1, 2, 3, 4, 5, 13, 14, 15, 16, 17, 31, 33, 64, 100, 169)


def check(rng, batch, m, n, k, **asked):
    """One product, its operands drawn, against float64."""
    turned = [bool(rng.integers(2)) for _ in range(2)]
    alpha, beta = (float(rng.choice([0.0, 1.0, -0.5])) for _ in range(2))
    options = {"a_turned": turned[0], "b_turned": turned[1], "alpha": alpha, "beta": beta} | asked
    shared = int(rng.integers(3)) if batch else 0
    a = normal(rng, *(() if shared == 1 else batch), m, k)
    b = normal(rng, *(() if shared == 2 else batch), k, n)
    before = normal(rng, *batch, m, n) if options["beta"] else None
    bias = normal(rng, n) if rng.integers(2) else None
    exact = options["alpha"] * (a.astype(float) @ b.astype(float))
    exact = np.broadcast_to(exact, (*batch, m, n))
    exact = exact + (0 if before is None else options["beta"] * before.astype(float))
    exact = exact + (0 if bias is None else bias)
    a, b = (
        np.ascontiguousarray(np.swapaxes(each, -1, -2)) if turn else each
        for each, turn in ((a, options["a_turned"]), (b, options["b_turned"]))
    )
    (found,) = run(
        lambda c, work: gemm.gemm(a, b, c, work, bias=bias, **options),
        (*batch, m, n),
        work=gemm.work(int(np.prod(batch, dtype=int)), m, n, k),
        inputs=(a, b),
        start=(before,),
    )
    assert relative_error(found, exact, least=np.sqrt(k) or 1) < 2e-6, (batch, m, n, k, options)


@pytest.mark.parametrize("seed", sampled(range(40)))
def test_products_are_those_of_float64(seed):
    rng = np.random.default_rng(seed)
    m, n, k = (int(rng.choice(LENGTHS)) for _ in range(3))
    check(rng, (), m, n, k)


@pytest.mark.parametrize("seed", sampled(range(20)))
def test_batches_are_those_of_float64(seed):
    rng = np.random.default_rng(100 + seed)
    m, n, k = (int(rng.choice(LENGTHS)) for _ in range(3))
    check(rng, tuple(rng.integers(1, 4, rng.integers(1, 3)).tolist()), m, n, k)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (700, 40, 30),
        (20, 3100, 20),
        (40, 50, 530),
        (340, 3080, 260),
        (1, 1100, 300),
        (1030, 1, 300),
        (30, 40, 1024),
        (1024, 70, 20),
        (1100, 40, 30),
    ],
)
@pytest.mark.parametrize("a_turned", [False, True])
@pytest.mark.parametrize("b_turned", [False, True])
def test_products_beyond_a_block_are_those_of_float64(m, n, k, a_turned, b_turned):
    rng = np.random.default_rng(7)
    check(rng, (), m, n, k, a_turned=a_turned, b_turned=b_turned)


def test_batches_of_large_matrices_are_cut_one_after_the_other():
    check(np.random.default_rng(3), (2,), 350, 400, 300)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 3, 4), (3, 0, 4), (20, 30, 0), (2, 30, 0)])
def test_empty_axes_give_what_is_left_of_the_sum(m, n, k):
    check(np.random.default_rng(1), (), m, n, k, beta=1.0)


def test_a_number_that_is_none_stays_where_it_belongs():
    a, b = np.ones((30, 40), np.float32), np.ones((40, 50), np.float32)
    a[3, 7], b[5, 9] = np.nan, np.inf
    c = np.empty((30, 50), np.float32)
    gemm.gemm(a, b, c, np.empty(gemm.work(1, 30, 50, 40), np.int8))()

    assert np.array_equal(np.isnan(c), np.isnan(a @ b))
    assert np.array_equal(np.isinf(c), np.isinf(a @ b))
